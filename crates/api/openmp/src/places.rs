//! Places: sets of CPUs to which threads are bound.

use garonne_topology::{CpuSet, Kind, Tree};

/// The list of places, in the order in which the environment names them.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<Vec<u32>>);

impl Places {
    /// A place for each CPU.
    pub fn each_cpu(cpus: &[u32]) -> Self {
        Self(cpus.iter().map(|cpu| vec![*cpu]).collect())
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of places.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// CPUs of a place.
    pub fn cpus(&self, place: usize) -> &[u32] {
        self.0.get(place).map_or(&[], Vec::as_slice)
    }

    /// Reads `OMP_PLACES`: an abstract name with a number, or a list of sets.
    pub fn parse(text: &str, allowed: &[u32]) -> Option<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let places = if lower.starts_with(['{', '!']) {
            explicit(&lower)?
        } else {
            named(&lower, allowed)?
        };
        let usable = places.into_iter().map(|place| {
            let cpus = place.into_iter().filter(|cpu| allowed.contains(cpu));
            cpus.collect::<Vec<u32>>()
        });
        let usable: Vec<_> = usable.filter(|place| !place.is_empty()).collect();
        (!usable.is_empty()).then_some(Self(usable))
    }

    /// Reads `GOMP_CPU_AFFINITY`: CPUs and ranges with strides, a place for each CPU.
    pub fn parse_affinity(text: &str, allowed: &[u32]) -> Option<Self> {
        let mut cpus = Vec::new();
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            let (range, stride) = word.split_once(':').unwrap_or((word, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            let stride: usize = stride.parse().ok().filter(|stride| *stride > 0)?;
            if last < first {
                return None;
            }
            cpus.extend((first..=last.min(first.saturating_add(65535))).step_by(stride));
        }
        cpus.retain(|cpu| allowed.contains(cpu));
        (!cpus.is_empty()).then(|| Self::each_cpu(&cpus))
    }
}

/// Reads `cores`, `threads(4)` and so on.
fn named(text: &str, allowed: &[u32]) -> Option<Vec<Vec<u32>>> {
    let (name, count) = match text.split_once('(') {
        Some((name, rest)) => {
            let count: usize = rest.trim().strip_suffix(')')?.trim().parse().ok()?;
            (name.trim(), count)
        }
        None => (text, usize::MAX),
    };
    if count == 0 {
        return None;
    }
    let mut set = CpuSet::new();
    allowed.iter().for_each(|cpu| set.insert(*cpu));
    let of_kind = |kind: Kind| {
        let tree = Tree::over(&set);
        let areas = tree
            .areas()
            .iter()
            .filter(|area| area.kinds.contains(&kind));
        let mut found: Vec<Vec<u32>> = areas.map(|area| area.cpus.iter().collect()).collect();
        found.sort();
        found
    };
    let mut places = match name {
        "threads" => allowed.iter().map(|cpu| vec![*cpu]).collect(),
        "cores" => of_kind(Kind::parse("core")?),
        "sockets" => of_kind(Kind::parse("package")?),
        "ll_caches" => of_kind(Kind::parse("L3")?),
        "numa_domains" => of_kind(Kind::parse("numa")?),
        _ => return None,
    };
    if places.is_empty() {
        places.push(allowed.to_vec());
    }
    places.truncate(count);
    Some(places)
}

/// A number at the beginning of a text.
fn number(text: &mut &str) -> Option<i64> {
    *text = text.trim_start();
    let digits = text.char_indices();
    let end = digits
        .skip_while(|(at, c)| c.is_ascii_digit() || (*at == 0 && *c == '-'))
        .map(|(at, _)| at)
        .next()
        .unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    *text = rest;
    head.parse().ok().filter(|n: &i64| n.abs() < 1 << 20)
}

fn skip(text: &mut &str, c: char) -> bool {
    *text = text.trim_start();
    match text.strip_prefix(c) {
        Some(rest) => {
            *text = rest;
            true
        }
        None => false,
    }
}

/// Reads `:length[:stride]`, if it is there.
fn interval(text: &mut &str) -> Option<Option<(i64, i64)>> {
    if !skip(text, ':') {
        return Some(None);
    }
    let length = number(text).filter(|length| *length > 0 && *length < 65536)?;
    let stride = if skip(text, ':') { number(text)? } else { 1 };
    Some(Some((length, stride)))
}

/// Reads one set: `{0,2:4:2,!3}`, or a bare number.
fn set(text: &mut &str) -> Option<Vec<u32>> {
    let mut cpus: Vec<u32> = Vec::new();
    if !skip(text, '{') {
        return Some(vec![u32::try_from(number(text)?).ok()?]);
    }
    loop {
        let excluded = skip(text, '!');
        let first = number(text)?;
        let (length, stride) = interval(text)?.unwrap_or((1, 1));
        for at in 0..length {
            let cpu = u32::try_from(first + at * stride).ok()?;
            if excluded {
                cpus.retain(|other| *other != cpu);
            } else if !cpus.contains(&cpu) {
                cpus.push(cpu);
            }
        }
        if skip(text, '}') {
            return Some(cpus);
        }
        if !skip(text, ',') {
            return None;
        }
    }
}

/// Reads a list of sets, each with an optional length and stride.
fn explicit(text: &str) -> Option<Vec<Vec<u32>>> {
    let (mut rest, mut places) = (text, Vec::<Vec<u32>>::new());
    loop {
        let excluded = skip(&mut rest, '!');
        let first = set(&mut rest)?;
        let (length, stride) = interval(&mut rest)?.unwrap_or((1, 1));
        for at in 0..length {
            let moved = first.iter().map(|cpu| i64::from(*cpu) + at * stride);
            let place: Option<Vec<u32>> = moved.map(|cpu| u32::try_from(cpu).ok()).collect();
            let mut place = place?;
            place.sort_unstable();
            if excluded {
                places.retain(|other| *other != place);
            } else {
                places.push(place);
            }
        }
        rest = rest.trim_start();
        if rest.is_empty() {
            return Some(places);
        }
        if !skip(&mut rest, ',') {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let cpus: Vec<u32> = (0..8).collect();
        let parse = |text| Places::parse(text, &cpus).map(|places| places.0);
        let threads = parse("threads(2)").unwrap();
        assert_eq!(threads, [vec![0], vec![1]]);
        assert_eq!(parse("{0:2}:3:2").unwrap(), [[0, 1], [2, 3], [4, 5]]);
        assert_eq!(parse("{0,3,5},{7}").unwrap(), [vec![0, 3, 5], vec![7]]);
        assert_eq!(parse("{1}, {2}, !{1}").unwrap(), [[2]]);
        assert_eq!(parse("{6:4}").unwrap(), [[6, 7]], "those that are allowed");
        for wrong in [
            "",
            "chairs",
            "{",
            "{1",
            "{x}",
            "{0}:0",
            "{9}",
            "threads(0)",
            "{0}:9999999999",
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
        let affinity = Places::parse_affinity("0 3 4-7:2", &cpus).unwrap();
        assert_eq!(affinity.0, [[0], [3], [4], [6]]);
    }
}
