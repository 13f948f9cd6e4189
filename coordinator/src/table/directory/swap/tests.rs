use super::*;
use crate::commit::tests::{Bench, count_rows, run_of};
use crate::sweep::remove_old_tree;

const EN: &[&str] = &["en/chunks-0000.parquet", "en/chunks-0001.parquet"];
const EN_OUT: &str = "en/chunks-0000-0001.parquet";
const STAYS: &str = "fr/chunks-0000.parquet";

fn compacted() -> Bench {
    let mut bench = Bench::new(PublishMode::InPlace);
    bench.write(&bench.source, EN[0], 3, "e0");
    bench.write(&bench.source, EN[1], 4, "e1");
    bench.write(&bench.source, STAYS, 5, "f0");
    bench.target.put("notes.txt", b"mine").unwrap();
    let prepared = bench.plan(&[run_of("en", EN, EN_OUT)]);
    bench.commit(&prepared).unwrap();
    bench
}

fn path(bench: &Bench) -> PathBuf {
    bench.path(&bench.target, "en").parent().unwrap().to_owned()
}

fn is_swapped(bench: &Bench, swapped: &Swapped) {
    assert_eq!(swapped.checks.mismatches, Vec::<String>::new());
    assert_eq!(swapped.generation.generation, 2);
    let table = DirectoryTable::new(open(&path(bench)).unwrap(), "");
    let plain: Vec<String> = table.list("").unwrap().into_iter().map(|info| info.path).collect();
    let plain: Vec<&str> = plain.iter().map(String::as_str).filter(|path| !path.starts_with("_baler/")).collect();
    assert_eq!(plain, [EN_OUT, STAYS, "notes.txt"]);
    assert_eq!(table.read(EN_OUT).unwrap().unwrap().as_ref(), b"rows=7;e0+e1");
    assert_eq!(remove_old_tree(&path(bench)).unwrap(), 0);
    assert!(!sibling(&path(bench)).unwrap().exists());
    assert_eq!(table.read(STAYS).unwrap().unwrap().as_ref(), b"rows=5;f0");
}

#[test]
fn after_the_exchange_plain_readers_see_the_live_files_and_all_that_is_not_data() {
    let bench = compacted();
    let swapped = swap(&path(&bench), 5, &count_rows).unwrap().unwrap();
    is_swapped(&bench, &swapped);
    assert_eq!(swap(&path(&bench), 5, &count_rows).unwrap(), None);
}

#[test]
fn an_exchange_that_was_cut_short_anywhere_is_finished() {
    for cut in 0..4 {
        let bench = compacted();
        let (path, newest) = (path(&bench), newest_of(&path(&bench)).unwrap());
        let side = sibling(&path).unwrap();
        build(&path, &side, &newest).unwrap();
        if cut > 0 {
            rename(&path.join(CONTROL), &side.join(CONTROL)).unwrap();
        }
        if cut > 1 {
            exchange_trees(&path, &side).unwrap();
        }
        if cut > 2 {
            empty_old_tree(&path, &side, &newest).unwrap();
        }
        assert_eq!(is_begun(&path).unwrap(), cut != 1, "the control folder is away after cut 1");
        recover(&path).unwrap();
        assert!(is_begun(&path).unwrap());
        let swapped = swap(&path, 5, &count_rows).unwrap().unwrap();
        assert!(!is_begun(&path).unwrap());
        is_swapped(&bench, &swapped);
    }
}

#[test]
fn a_commit_in_the_middle_of_an_exchange_is_refused() {
    let bench = compacted();
    let (path, newest) = (path(&bench), newest_of(&path(&bench)).unwrap());
    let side = sibling(&path).unwrap();
    build(&path, &side, &newest).unwrap();
    exchange(&path, &side).unwrap();
    let table = DirectoryTable::new(open(&path).unwrap(), "");
    let mut twice = Generation { generation: 2, parent: 1, ..newest };
    twice.live.iter_mut().for_each(|file| file.identity = look(&table, &file.object).unwrap());
    let plain = twice.live.iter().find(|file| file.object != file.path).unwrap();
    let identity = look(&table, &plain.path).unwrap();
    let again = ListedFile { object: plain.path.clone(), identity, ..plain.clone() };
    twice.live.push(again);
    let refused = generation::create(&table, &twice).unwrap_err();
    assert!(refused.message.contains("listed twice"), "{refused}");
    assert_eq!(generation::newest(&table).unwrap().unwrap().generation, 1);
}

#[test]
fn a_file_that_is_appended_to_the_old_tree_is_in_the_new_one() {
    let bench = compacted();
    let (path, newest) = (path(&bench), newest_of(&path(&bench)).unwrap());
    let side = sibling(&path).unwrap();
    build(&path, &side, &newest).unwrap();
    bench.write(&bench.target, "en/chunks-0002.parquet", 1, "late");
    exchange(&path, &side).unwrap();
    let swapped = swap(&path, 5, &count_rows).unwrap().unwrap();
    assert_eq!((swapped.checks.files_appended, swapped.checks.mismatches), (1, Vec::new()));
    assert_eq!(fs::read(path.join("en/chunks-0002.parquet")).unwrap(), b"rows=1;late");
}
