//! The manual, made from the command line's own descriptions.

use std::io::Write;
use std::path::Path;

use baler_common::model::error::{Failure, FailureClass};
use clap::CommandFactory;

use crate::args::Cli;

/// Prints the page of `baler`, or writes a page for each command into a folder.
pub fn print(folder: Option<&Path>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let place = folder.map_or_else(|| "standard output".to_owned(), |folder| folder.display().to_string());
        Failure::new(FailureClass::Policy, format!("the manual cannot be written: {error}")).in_file(place)
    };
    match folder {
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(failed)?;
            clap_mangen::generate_to(Cli::command(), folder).map_err(failed)
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(failed)?;
            std::io::stdout().write_all(&page).map_err(failed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_every_command_that_people_use() {
        let folder = tempfile::tempdir().unwrap();
        print(Some(folder.path())).unwrap();
        let page = std::fs::read_to_string(folder.path().join("baler-compact.1")).unwrap();
        for flag in ["target\\-size", "dedup", "allow\\-torn\\-reads", "statistics\\-truncate"] {
            assert!(page.contains(flag), "{flag}");
        }
        let commands = Cli::command();
        for command in commands.get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(folder.path().join(format!("baler-{}.1", command.get_name())).is_file(), "{}", command.get_name());
        }
    }
}
