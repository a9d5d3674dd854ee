//! `garonne generate DIR`: manual pages, completions, and the sources of the Fortran modules, as an
//! installation has them below `share`. Called by `./x install`, and by packagers.
//!
//! Pages and completions are made of the tables that `--help` is made of; the modules of the tables
//! of MPI's functions and constants.

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
    fortran_modules(&share.join("garonne/fortran"))?;
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

/// Sources of the modules `mpi` and `mpi_f08`, which `mpifort` builds for each compiler.
fn fortran_modules(directory: &Path) -> std::io::Result<()> {
    use garonne_abi_gen::fortran::{MPI_F08_TEMPLATE, MPI_TEMPLATE, TYPES_TEMPLATE, modules};
    let constants = garonne_abi_gen::constants().map_err(std::io::Error::other)?;
    let routines = garonne_abi_gen::fortran_routines().map_err(std::io::Error::other)?;
    std::fs::create_dir_all(directory)?;
    for (name, text) in [
        (
            "mpi_garonne_types",
            modules::types(TYPES_TEMPLATE, &constants),
        ),
        ("mpi", modules::mpi(MPI_TEMPLATE, &constants, &routines)),
        (
            "mpi_f08",
            modules::mpi_f08(MPI_F08_TEMPLATE, &constants, &routines),
        ),
    ] {
        std::fs::write(directory.join(format!("{name}.f90.in")), text)?;
    }
    Ok(())
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
