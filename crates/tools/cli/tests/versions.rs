//! Ranks and agents of different versions: they use what both speak, or are refused by name.

mod support;

use support::run;

#[test]
fn different_versions_in_one_job_are_refused_by_name() {
    let said = run("run -n 2 RANK pose 9.9.9 hello forever");
    assert_ne!(said.code, 0);
    assert!(
        said.err.contains("error[G0203]") && said.err.contains("9.9.9"),
        "{}",
        said.err
    );
}

#[test]
fn a_rank_and_its_agent_speak_the_highest_protocol_of_both_or_are_refused_by_name() {
    let said = run("run -n 2 RANK speak 1 2 hello put a b fence finalize");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let said = run("run -n 2 RANK pose 9.9.9 speak 4 5 hello forever");
    assert_ne!(said.code, 0);
    let own = env!("CARGO_PKG_VERSION");
    for name in [
        "error[G0203]",
        "rank 1 loaded Garonne 9.9.9 (protocols 4 to 5)",
        &format!("`garonne` is {own} (protocols 1 to 1)"),
    ] {
        assert!(said.err.contains(name), "{}", said.err);
    }
}
