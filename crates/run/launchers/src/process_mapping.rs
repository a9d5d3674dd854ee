//! Which ranks share a host, as launchers of the PMI family write it: `(vector,(0,2,4))` are two
//! nodes from node 0 on, with four ranks each. Pure.

use garonne_job::limits::RANKS_MAX;

/// The node of each rank. `None`: the text says nothing that can be understood.
pub(super) fn nodes(text: &str, size: u32) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let blocks = blocks(inner)?;
    let per_round: u64 = blocks
        .iter()
        .map(|(_, nodes, each)| u64::from(*nodes) * u64::from(*each))
        .sum();
    if per_round == 0 || size > RANKS_MAX {
        return None;
    }
    let round = blocks.iter().flat_map(|(first, nodes, each)| {
        let (first, each) = (*first, *each as usize);
        (0..*nodes).flat_map(move |node| std::iter::repeat_n(first.saturating_add(node), each))
    });
    // Blocks that cover fewer ranks than there are begin again.
    Some(round.cycle().take(size as usize).collect())
}

/// Triples of first node, nodes, ranks on each.
fn blocks(mut text: &str) -> Option<Vec<(u32, u32, u32)>> {
    let mut blocks = Vec::new();
    text = text.trim_start();
    while !text.is_empty() {
        let (block, rest) = text.strip_prefix('(')?.split_once(')')?;
        let mut numbers = block.split(',').map(|number| number.trim().parse::<u32>());
        let mut next = || numbers.next()?.ok();
        let block = (next()?, next()?.min(RANKS_MAX), next()?.min(RANKS_MAX));
        // Nodes without ranks would be walked over for nothing, as often as a text that repeats
        // them likes.
        if block.1 > 0 && block.2 > 0 {
            blocks.push(block);
        }
        text = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_laid_out_in_their_order_and_begin_again_where_they_are_too_few() {
        assert_eq!(nodes("(vector,(0,2,2))", 4).unwrap(), [0, 0, 1, 1]);
        assert_eq!(nodes("(vector,(0,2,1))", 4).unwrap(), [0, 1, 0, 1]);
        assert_eq!(
            nodes("(vector,(0,1,3),(1,2,1))", 5).unwrap(),
            [0, 0, 0, 1, 2]
        );
        assert_eq!(
            nodes("(vector, (0,1,3), (1,1,1))", 4).unwrap(),
            [0, 0, 0, 1]
        );
    }

    #[test]
    fn nodes_without_ranks_cost_nothing_however_many_are_named() {
        let none = "(0,16384,0),".repeat(5000);
        let nodes = nodes(&format!("(vector,{none}(7,1,1))"), RANKS_MAX).unwrap();
        assert_eq!(nodes, vec![7; RANKS_MAX as usize]);
    }

    #[test]
    fn what_is_no_mapping_is_none() {
        for text in [
            "",
            "(vector,)",
            "(vector,(0,0,5))",
            "(vector,(0,1))",
            "(simple,(0,1,1))",
            "(vector,(a,1,1))",
            "(vector,(0,1,1)",
        ] {
            assert_eq!(nodes(text, 4), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in "\\(vector,[(),0-9]{0,40}\\)") {
            if let Some(nodes) = nodes(&text, 100) {
                prop_assert_eq!(nodes.len(), 100);
            }
        }
    }
}
