use clap::CommandFactory;

use super::*;

fn compact(words: &[&str]) -> CompactArgs {
    let parsed = Cli::try_parse_from(["baler", "compact"].iter().chain(words)).expect("the words are a command");
    match parsed.command {
        Command::Compact(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_is_well_formed_and_every_flag_is_documented() {
    let command = Cli::command();
    command.clone().debug_assert();
    for sub in command.get_subcommands() {
        assert!(sub.get_about().is_some(), "{}", sub.get_name());
        for argument in sub.get_arguments().filter(|argument| argument.get_long().is_some()) {
            assert!(argument.get_help().is_some(), "{} {}", sub.get_name(), argument.get_id());
        }
    }
}

#[test]
fn dedup_stands_alone_or_names_tables() {
    assert_eq!(compact(&["src", "--out", "dst"]).planning.dedup, None);
    assert_eq!(compact(&["src", "--dedup"]).planning.dedup.as_deref(), Some("*"));
    assert_eq!(compact(&["--dedup=a,b", "src"]).planning.dedup.as_deref(), Some("a,b"));
    assert_eq!(compact(&["--dedup", "src"]).source, "src");
}

#[test]
fn modes_of_publishing_exclude_each_other() {
    for words in [
        ["src", "--out=d", "--swap"],
        ["src", "--out=d", "--allow-torn-reads"],
        ["src", "--swap", "--allow-torn-reads"],
    ] {
        assert!(Cli::try_parse_from(["baler", "compact"].iter().chain(&words)).is_err(), "{words:?}");
    }
}
