//! `plan`, `apply` and `explain`: what would happen, and a plan that was reviewed carried out.
//!
//! A saved plan is one JSON object, `{"format":"baler.plan","version":1,"sha256":"…","body":{…}}`. The body says where
//! the tables are, shows each plan for reading, and carries it in its stored form; the digest is over the bytes of the
//! body, so that a plan that was edited is refused instead of half believed.

use std::collections::BTreeSet;
use std::path::Path;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::ObjectRef;
use baler_coordinator::plan::{Plan, PublishMode, TableSnapshot};
use baler_coordinator::state::records::{decode_plan, encode_plan};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::args::{ApplyArgs, ExplainArgs, LayoutAs, PlanArgs};
use crate::compaction::{Running, run_table};
use crate::isolation::{hex, unhex};
use crate::request;
use crate::show::plan::{mode, picture, plan_json, reason};
use crate::show::{Style, count, counted};
use baler_coordinator::compaction::{CompactError, Places, plan_table};

const HEAD: &str = "{\"format\":\"baler.plan\",\"version\":1,\"sha256\":\"";

/// Plans every table of a location.
fn plans(
    places: &Places,
    snapshots: &[TableSnapshot],
    options: &baler_coordinator::plan::PlanOptions,
) -> Result<Vec<Plan>, Failure> {
    // A destination that is not there yet has no generation.
    let absent = places.publish == PublishMode::Destination && places.target.location() == places.source.location();
    snapshots
        .iter()
        .map(|snapshot| {
            let mut plan = plan_table(places, snapshot, options)?;
            if absent {
                plan.base_generation = 0;
            }
            Ok(plan)
        })
        .collect()
}

/// `baler plan`. True when no key was refused.
pub fn plan(args: &PlanArgs) -> Result<bool, CompactError> {
    let places = Places::open(&args.source, args.out.as_deref(), args.allow_torn_reads, false)?;
    let options = request::plan_options(&args.planning, &args.writing, places.publish, ObjectRef::new("target", ""))?;
    let snapshots = places.scan(request::root_as(args.planning.layout_as))?;
    let plans = plans(&places, &snapshots, &options)?;
    print_plans(&plans, args.json);
    if plans.is_empty() && !args.json {
        println!("{}: no *.parquet file was found, so there is nothing to do", places.source.location());
    }
    if let Some(file) = &args.save {
        save(file, args, &snapshots, &plans)?;
        eprintln!("saved: {} (carry it out with `baler apply {}`)", file.display(), file.display());
    }
    Ok(plans.iter().all(|plan| plan.refusals.is_empty()))
}

/// Prints plans as pictures or as one JSON object.
pub fn print_plans(plans: &[Plan], as_json: bool) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if as_json {
        let tables: Vec<Value> = plans.iter().map(|plan| plan_json(plan, cores)).collect();
        println!("{}", json!({ "tables": tables }));
    } else {
        plans.iter().for_each(|plan| print!("{}", picture(plan, cores, Style::of_standard_output())));
    }
}

fn save(file: &Path, args: &PlanArgs, snapshots: &[TableSnapshot], plans: &[Plan]) -> Result<(), Failure> {
    let tables: Vec<Value> = plans
        .iter()
        .zip(snapshots)
        .map(|(plan, snapshot)| {
            json!({
                "folder": snapshot.folder,
                "shown": plan_json(plan, 1),
                "plan": hex(&encode_plan(plan)),
            })
        })
        .collect();
    let layout = args.planning.layout_as.map(|layout| match layout {
        LayoutAs::Root => "root",
        LayoutAs::Table => "table",
        LayoutAs::Key => "key",
    });
    let body = json!({
        "source": absolute(&args.source),
        "out": args.out.as_deref().map(absolute),
        "torn_reads": args.allow_torn_reads,
        "as": layout,
        "tables": tables,
    });
    let content = sealed(&body.to_string());
    std::fs::write(file, content).map_err(|error| wrong(file, format!("cannot be written: {error}")))
}

/// The body behind its digest.
fn sealed(body: &str) -> String {
    format!("{HEAD}{}\",\"body\":{body}}}\n", hex(&Sha256::digest(body.as_bytes())))
}

/// The body of a saved plan, if it is what its digest says.
fn unsealed(content: &str) -> Result<&str, &'static str> {
    let not_ours = "is not a plan that this version of `baler plan --save` wrote";
    let rest = content.trim_end().strip_prefix(HEAD).ok_or(not_ours)?;
    let (digest, rest) = rest.split_once("\",\"body\":").ok_or(not_ours)?;
    let body = rest.strip_suffix('}').ok_or(not_ours)?;
    if hex(&Sha256::digest(body.as_bytes())) != digest {
        return Err("was changed after it was saved: plan again");
    }
    Ok(body)
}

fn absolute(location: &str) -> String {
    match location.split_once("://") {
        None => std::path::absolute(location).map_or_else(|_| location.to_owned(), |path| path.display().to_string()),
        Some(_) => location.to_owned(),
    }
}

/// One table of a saved plan.
struct Saved {
    folder: String,
    plan: Plan,
}

/// `baler apply`. True when all of it was done.
pub fn apply(args: &ApplyArgs) -> Result<bool, CompactError> {
    let file = &args.file;
    let content = std::fs::read_to_string(file).map_err(|error| wrong(file, format!("cannot be read: {error}")))?;
    let body = unsealed(&content).map_err(|message| wrong(file, message))?;
    let body: Value = serde_json::from_str(body).map_err(|error| wrong(file, error.to_string()))?;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let source = text("source").ok_or_else(|| wrong(file, "names no source"))?;
    let layout = match text("as") {
        None => None,
        Some("root") => Some(LayoutAs::Root),
        Some("table") => Some(LayoutAs::Table),
        Some("key") => Some(LayoutAs::Key),
        Some(other) => return Err(wrong(file, format!("{other:?} is no kind of location")).into()),
    };
    let torn_reads = body.get("torn_reads").and_then(Value::as_bool).unwrap_or(false);
    let saved = saved_tables(&body).map_err(|message| wrong(file, message))?;

    let places = Places::open(source, text("out"), torn_reads, true)?;
    let mut running = Running::new(&args.running)?;
    running.finish_interrupted(&places)?;
    let snapshots = places.scan(request::root_as(layout))?;
    for Saved { folder, plan } in saved {
        let Some(snapshot) = snapshots.iter().find(|snapshot| snapshot.folder == folder) else {
            let message = format!("table {} is not there any more: plan again", plan.table);
            return Err(Failure::new(FailureClass::InputMissing, message).in_file(plan.source_location).into());
        };
        run_table(&mut running, &places, &as_planned(snapshot, &plan), plan)?;
    }
    Ok(running.finish())
}

fn saved_tables(body: &Value) -> Result<Vec<Saved>, String> {
    let tables = body.get("tables").and_then(Value::as_array).ok_or("lists no tables")?;
    tables
        .iter()
        .map(|table| {
            let text = |name: &str| table.get(name).and_then(Value::as_str);
            let folder = text("folder").ok_or("has a table without a folder")?.to_owned();
            let stored = text("plan").and_then(unhex).ok_or("has a table without a plan")?;
            Ok(Saved { folder, plan: decode_plan(&stored).map_err(|failure| failure.to_string())? })
        })
        .collect()
}

/// The snapshot without the files that came after the plan: the next compaction takes them up. Files of refused keys are
/// all kept.
fn as_planned(snapshot: &TableSnapshot, plan: &Plan) -> TableSnapshot {
    let skipped: BTreeSet<&str> = plan.skips.iter().map(|skip| skip.file.as_str()).collect();
    let inputs: BTreeSet<&str> =
        plan.jobs.iter().flat_map(|job| &job.inputs).map(|input| input.object.path.as_str()).collect();
    let mut planned = snapshot.clone();
    for key in &mut planned.keys {
        if plan.refusals.iter().all(|refusal| refusal.key != key.key) {
            key.files.retain(|file| skipped.contains(file.path.as_str()) || inputs.contains(file.object.path.as_str()));
        }
    }
    planned.keys.retain(|key| !key.files.is_empty());
    planned
}

/// `baler explain`. True when the name was found and is not refused.
pub fn explain(args: &ExplainArgs) -> Result<bool, CompactError> {
    let places = Places::open(&args.location, args.out.as_deref(), false, false)?;
    let options = request::plan_options(&args.planning, &args.writing, places.publish, ObjectRef::new("target", ""))?;
    let snapshots = places.scan(request::root_as(args.planning.layout_as))?;
    let plans = plans(&places, &snapshots, &options)?;
    let wanted = args.name.trim_end_matches('/');
    let (mut found, mut refused) = (false, false);
    for (plan, snapshot) in plans.iter().zip(&snapshots) {
        let below = wanted
            .strip_prefix(&snapshot.source_location)
            .or_else(|| wanted.strip_prefix(&plan.table))
            .and_then(|rest| rest.strip_prefix('/'))
            .unwrap_or(wanted);
        for key in &snapshot.keys {
            let whole = key.key == below || key.key == wanted;
            let named = |path: &str| path == below || path == wanted || path.rsplit('/').next() == Some(wanted);
            let files: Vec<&str> =
                key.files.iter().map(|file| file.path.as_str()).filter(|path| whole || named(path)).collect();
            if !whole && files.is_empty() {
                continue;
            }
            found = true;
            println!("table {}, key {}", plan.table, key.key);
            plan.notes.iter().for_each(|note| println!("  note: {note}"));
            for refusal in plan.refusals.iter().filter(|refusal| refusal.key == key.key) {
                refused = true;
                println!("  the key is refused: {}", refusal.failure);
            }
            for path in files {
                println!("  {path}: {}", why(plan, snapshot, &key.key, path));
            }
        }
    }
    if !found {
        let message =
            "no file and no key has this name; name a file below its table, or a key as `baler plan` shows it";
        return Err(Failure::new(FailureClass::InputMissing, message).in_file(wanted).into());
    }
    Ok(!refused)
}

/// What happens to one file, and why.
fn why(plan: &Plan, snapshot: &TableSnapshot, key: &str, path: &str) -> String {
    let files = snapshot.keys.iter().find(|snapshot| snapshot.key == key).map_or(&[][..], |key| &key.files);
    let Some(file) = files.iter().find(|file| file.path == path) else { return "it is not in the snapshot".to_owned() };
    let facts = file.facts.as_ref().map_or_else(
        || "its footer could not be read".to_owned(),
        |facts| {
            format!(
                "{}, {}, {}, {}",
                counted(facts.rows, "row", "rows"),
                counted(u64::from(facts.row_groups), "row group", "row groups"),
                if facts.all_zstd { "zstd" } else { "not all zstd" },
                if facts.page_index { "page index" } else { "no page index" }
            )
        },
    );
    for job in &plan.jobs {
        if let Some(place) = job.inputs.iter().position(|input| input.object.path == file.object.path) {
            return format!(
                "file {} of {} of job {} ({}), which becomes {} ({facts})",
                place + 1,
                count(job.inputs.len() as u64),
                job.job,
                mode(job.mode),
                job.output_path
            );
        }
    }
    match plan.skips.iter().find(|skip| skip.file == path) {
        Some(skip) => format!("stays as it is: {} ({facts})", reason(&skip.reason)),
        None => format!("in no job, since its key is refused ({facts})"),
    }
}

fn wrong(file: &Path, message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::Policy, message).in_file(file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_plan_that_was_edited_is_refused() {
        let content = sealed(r#"{"tables":[]}"#);
        assert_eq!(unsealed(&content), Ok(r#"{"tables":[]}"#));
        let value: Value = serde_json::from_str(&content).unwrap();
        assert_eq!(value["format"], "baler.plan");
        assert!(unsealed(&content.replace("tables", "fables")).unwrap_err().contains("was changed"));
        assert!(unsealed("{}").unwrap_err().contains("is not a plan"));
    }
}
