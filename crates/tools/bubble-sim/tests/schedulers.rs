//! Every scheduler ends every workload, on several machines, and gives the same result each time.

use garonne_bubble_sim::{Costs, WORKLOADS, Workload, conditions, simulate, table};
use garonne_bubbles::{Machine, NAMES, by_name};
use garonne_topology::Tree;

#[test]
fn every_scheduler_ends_every_workload_with_all_its_work_and_always_alike() {
    for (packages, nodes, caches, cores) in [(4, 1, 1, 4), (1, 1, 1, 1), (2, 2, 2, 1)] {
        let machine = || Machine::new(&Tree::regular(packages, nodes, caches, cores));
        for name in WORKLOADS {
            let workload = Workload::by_name(name, &machine(), 1).unwrap();
            let mut works = Vec::new();
            for scheduler in NAMES {
                let run = || {
                    let scheduler = by_name(scheduler).unwrap();
                    simulate(machine(), &workload, scheduler, Costs::default()).unwrap()
                };
                let outcome = run();
                println!(
                    "{name} {scheduler} {}: {outcome:?}",
                    outcome.efficiency_percent()
                );
                assert_eq!(outcome, run(), "{name} under {scheduler}");
                assert_eq!(
                    (outcome.refused, outcome.rescued),
                    (0, 0),
                    "{name} under {scheduler}: {outcome:?}"
                );
                assert!(outcome.time >= outcome.work / outcome.processors);
                works.push(outcome.work);
            }
            works.dedup();
            assert_eq!(works.len(), 1, "{name}: {works:?}");
        }
    }
}

/// What `garonne bubbles simulate` prints without options, in the page of figures.
#[test]
fn the_page_of_figures_has_what_the_command_prints() {
    let machine = Machine::new(&Tree::regular(4, 1, 1, 4));
    let costs = Costs::default();
    let mut printed = conditions(&machine, &costs, 1);
    for name in WORKLOADS {
        let workload = Workload::by_name(name, &machine, 1).unwrap();
        let outcomes: Vec<_> = NAMES
            .iter()
            .map(|scheduler| {
                let made = by_name(scheduler).unwrap();
                let outcome = simulate(machine.clone(), &workload, made, costs).unwrap();
                ((*scheduler).to_owned(), outcome)
            })
            .collect();
        printed += &format!("\n{}", table(name, &outcomes));
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/benchmarks/bubbles.md"
    );
    let page = std::fs::read_to_string(path).unwrap();
    const MARK: &str = "<!-- made by `garonne bubbles simulate` -->\n\n";
    let (head, made) = page.split_once(MARK).expect("the page has no mark");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, format!("{head}{MARK}{printed}")).unwrap();
        return;
    }
    assert_eq!(
        made, printed,
        "UPDATE=1 cargo test -p garonne-bubble-sim makes it anew"
    );
}
