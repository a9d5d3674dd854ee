//! `garonne generate DIR`: manual pages and completions, as an installation has them below `share`.
//! Called by `./x install`, and by who packages.
//!
//! All of it is made of the tables that `--help` is made of.

use std::path::{Path, PathBuf};

use clap::ValueHint;

use super::{COMPLETED, asks, whole};
use crate::run::clap_command::ForeignOptions;

#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// The directory
    #[arg(value_hint = ValueHint::DirPath)]
    directory: PathBuf,
}

pub fn run(args: &GenerateArgs) -> i32 {
    match write(&args.directory) {
        Ok(()) => 0,
        Err(error) => super::fail(&format!(
            "cannot write to {}: {error}",
            args.directory.display()
        )),
    }
}

fn write(share: &Path) -> std::io::Result<()> {
    manual_pages(&share.join("man/man1"))?;
    for command in COMPLETED {
        for (shell, place) in [
            ("bash", format!("bash-completion/completions/{command}")),
            ("zsh", format!("zsh/site-functions/_{command}")),
            ("fish", format!("fish/vendor_completions.d/{command}.fish")),
        ] {
            let path = share.join(place);
            std::fs::create_dir_all(path.parent().unwrap_or(share))?;
            let mut text = asks(shell, command).unwrap_or_default();
            if shell == "zsh" {
                text.extend(at_first_use(command).bytes());
            }
            std::fs::write(path, text)?;
        }
    }
    Ok(())
}

/// A function that zsh loads by its name is the file as a whole: at its first use it also answers.
fn at_first_use(command: &str) -> String {
    format!(
        "\nif [[ ${{funcstack[1]}} = _{command} ]]; then\n    _clap_dynamic_completer_{command} \"$@\"\nfi\n"
    )
}

/// A page for the command and one for each subcommand; those of the launchers' names lead to that
/// of `run`.
fn manual_pages(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let command = whole(ForeignOptions::Told).disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory)?;
    for name in &COMPLETED[1..] {
        std::fs::write(
            directory.join(format!("{name}.1")),
            ".so man1/garonne-run.1\n",
        )?;
    }
    Ok(())
}
