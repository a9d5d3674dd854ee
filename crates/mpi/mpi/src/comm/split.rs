//! Splits of communicators: by colours that processes give, and by the resources that they share
//! (MPI 5.0 section 7.4.2, `MPI_Comm_split` and `MPI_Comm_split_type`).
//!
//! Every process gives a [`SplitEntry`]; all get all entries and find their own part. In an
//! unguided split an entry has no colour yet. Each process then also gives the list of its
//! [`ResourceInstances`], and all compute every colour from all lists. So lists of different
//! lengths and names make no process wait for another.

use super::Comm;
use super::context_agreement::agree_on;
use super::setup_messages::word_at;
use super::shard::ShardRequest;
use super::{CommParts, hints};
use crate::coll::constructor_entry::ConstructorEntry;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::info::Info;
use crate::process::{HwInstance, HwResource};
use garonne_coll::call_tag::CollectiveKind;
use garonne_engine::api::CallOrigin;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Way in which `MPI_Comm_split_type` splits, with the ABI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum SplitType {
    Shared = 221,
    HwUnguided = 222,
    HwGuided = 223,
    ResourceGuided = 224,
}

impl TryFrom<i32> for SplitType {
    type Error = Error;

    fn try_from(number: i32) -> Result<Self> {
        [
            Self::Shared,
            Self::HwUnguided,
            Self::HwGuided,
            Self::ResourceGuided,
        ]
        .into_iter()
        .find(|known| *known as i32 == number)
        .ok_or_else(|| {
            Error::new(
                Class::Arg,
                format!("{number} is not a split type of MPI_Comm_split_type"),
            )
        })
    }
}

/// Info keys and a value of `MPI_Comm_split_type` that the standard defines.
const RESOURCE_TYPE: &str = "mpi_hw_resource_type";
const PROCESS_SET: &str = "mpi_pset_name";
const SHARED_MEMORY: &str = "mpi_shared_memory";

impl Comm {
    /// `MPI_Comm_split`: one communicator per colour, ranks ordered by key, then by rank here.
    /// `MPI_UNDEFINED` as colour gives `None`.
    pub fn split(&self, color: i32, key: i32, origin: CallOrigin) -> Result<Option<Comm>> {
        if color < 0 && color != crate::UNDEFINED {
            return Err(self.error(
                Class::Arg,
                format!(
                    "cannot be split with colour {color}: it must be 0 or more, or MPI_UNDEFINED"
                ),
            ));
        }
        let part = match color {
            crate::UNDEFINED => SplitKey::Nowhere,
            color => SplitKey::Color(color as u64),
        };
        self.split_by(
            SplitEntry { part, key },
            (CollectiveKind::CommSplit, origin),
            |_| (),
        )
    }

    /// A split in which every process has a colour; `dress` adds what is special.
    pub(crate) fn split_dressed(
        &self,
        color: u32,
        key: i32,
        called: (CollectiveKind, CallOrigin),
        dress: impl FnOnce(&mut CommParts) + Send + 'static,
    ) -> Result<Option<Comm>> {
        let part = SplitKey::Color(color.into());
        self.split_by(SplitEntry { part, key }, called, dress)
    }

    fn split_by(
        &self,
        ballot: SplitEntry,
        called: (CollectiveKind, CallOrigin),
        dress: impl FnOnce(&mut CommParts) + Send + 'static,
    ) -> Result<Option<Comm>> {
        let made = self.split_among(ballot, ResourceInstances::default(), called, dress)?;
        Ok(made.map(|(comm, _)| comm))
    }

    /// Splits; also tells the colour of the new communicator.
    fn split_among(
        &self,
        ballot: SplitEntry,
        places: ResourceInstances,
        (kind, origin): (CollectiveKind, CallOrigin),
        dress: impl FnOnce(&mut CommParts) + Send + 'static,
    ) -> Result<Option<(Comm, u64)>> {
        let entered = self.enter(kind, origin)?;
        if self.is_inter() {
            return self.split_inter(ballot, places, &entered);
        }
        let (comm, circle) = (self.clone(), self.circle(entered.origin()));
        self.run(async move {
            let mut ballots = decode(&circle.local.all_gather(&ballot.encode()).await?);
            if ballots.iter().any(SplitEntry::is_open) {
                settle(
                    &mut ballots,
                    &circle.local.all_gather_sized(&places.encode()).await?,
                );
            }
            let lease = agree_on(&circle, ShardRequest::Own).await?;
            let SplitKey::Color(color) = ballots[comm.rank() as usize].part else {
                return Ok(None);
            };
            let mut parts = comm.heir(elect(&comm.0.local, &ballots, color));
            dress(&mut parts);
            Ok(Some((Comm::build(lease, parts), color)))
        })
    }

    /// Splits an intercommunicator: the processes of one colour on both sides face each other.
    fn split_inter(
        &self,
        ballot: SplitEntry,
        places: ResourceInstances,
        entered: &ConstructorEntry,
    ) -> Result<Option<(Comm, u64)>> {
        let remote = self.remote_group()?.clone();
        let (comm, circle) = (self.clone(), self.circle(entered.origin()));
        self.run(async move {
            let ours = circle.local.all_gather(&ballot.encode()).await?;
            let theirs = circle.swap(ours.clone()).await?;
            let own_size = comm.0.local.size() as usize;
            let mut ballots = decode(&ours);
            ballots.extend(decode(&theirs));
            if ballots.iter().any(SplitEntry::is_open) {
                let mut lists = circle.local.all_gather_sized(&places.encode()).await?;
                lists.extend(circle.swap(lists.clone()).await?);
                settle(&mut ballots, &lists);
            }
            let (ours, theirs) = ballots.split_at(own_size);
            let color = match ours[comm.rank() as usize].part {
                SplitKey::Color(color) => Some(color),
                _ => None,
            };
            let side = |group, ballots: &[SplitEntry]| {
                color.map_or(Group::EMPTY, |color| elect(group, ballots, color))
            };
            let (local, remote) = (side(&comm.0.local, ours), side(&remote, theirs));
            Ok(comm.face(&circle, remote, local).await?.zip(color))
        })
    }

    /// `MPI_Comm_split_type`. `kind` is `None` for `MPI_UNDEFINED`. Guided splits know
    /// `mpi_shared_memory` (one node), the hardware resources of
    /// [`ProcessConfig::resources`](crate::process::Config) and the process sets of sessions; other
    /// names give `None`. An unguided split tells in `info` the type of the resource that its
    /// processes share.
    pub fn split_type(
        &self,
        kind: Option<SplitType>,
        key: i32,
        info: Option<&Info>,
        origin: CallOrigin,
    ) -> Result<Option<Comm>> {
        let wish = |name: &str| info.and_then(|info| info.lookup(name));
        let mut places = ResourceInstances::default();
        let part = match kind {
            None => SplitKey::Nowhere,
            Some(SplitType::Shared) => self.node_part(),
            Some(SplitType::HwGuided) => self.resource_part(wish(RESOURCE_TYPE)),
            Some(SplitType::ResourceGuided) => match (wish(PROCESS_SET), wish(RESOURCE_TYPE)) {
                (Some(_), Some(_)) => {
                    let text = format!(
                        "the info has both {RESOURCE_TYPE} and {PROCESS_SET}; one may be given"
                    );
                    return Err(Error::new(Class::Info, text));
                }
                (Some(set), None) => self.set_part(&set),
                (None, resource) => self.resource_part(resource),
            },
            Some(SplitType::HwUnguided) => {
                places = self.places();
                SplitKey::Open
            }
        };
        let kept = info.map(hints).unwrap_or_default();
        let (called, names) = (
            (CollectiveKind::CommSplitType, origin),
            places.names.clone(),
        );
        let dress = |parts: &mut CommParts| parts.info = kept;
        let Some((comm, color)) =
            self.split_among(SplitEntry { part, key }, places, called, dress)?
        else {
            return Ok(None);
        };
        if let (Some(info), Some(name)) = (info, names.get(&color)) {
            info.set(RESOURCE_TYPE, name)?;
        }
        Ok(Some(comm))
    }

    /// Returns a number that all processes of a node share.
    pub(crate) fn node_number(&self) -> u32 {
        let node = &self.0.process.config.node;
        node.members().min().unwrap_or(self.0.process.host.me())
    }

    fn node_part(&self) -> SplitKey {
        SplitKey::Color(self.node_number().into())
    }

    /// The part of those who are restricted to the same instance of a type of resource.
    fn resource_part(&self, resource: Option<String>) -> SplitKey {
        let Some(resource) = resource else {
            return SplitKey::Nowhere;
        };
        if resource == SHARED_MEMORY {
            return self.node_part();
        }
        let resources = (self.0.process.config.resources)();
        let found = resources.into_iter().find(|found| found.name == resource);
        match found.and_then(|found| found.instance) {
            Some(instance) => {
                SplitKey::Color(u64::from(self.node_number()) << 32 | u64::from(instance.first))
            }
            None => SplitKey::Nowhere,
        }
    }

    fn set_part(&self, set: &str) -> SplitKey {
        match crate::session::pset_index(set) {
            Some(0) => SplitKey::Color(0),
            Some(1) => SplitKey::Color(self.0.process.host.me().into()),
            Some(_) => self.node_part(),
            None => SplitKey::Nowhere,
        }
    }

    fn places(&self) -> ResourceInstances {
        let node = self.node_number();
        let on_node =
            |group: &Group| self.0.process.config.node.intersection(group).size() == group.size();
        // Where it spans nodes, nothing smaller than a node is chosen.
        let alone = on_node(&self.0.local) && self.0.remote.as_ref().is_none_or(on_node);
        let resources = match alone {
            true => (self.0.process.config.resources)(),
            false => Vec::new(),
        };
        ResourceInstances::of(node, resources)
    }
}

/// Place where a process goes in a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitKey {
    /// Into no new communicator.
    Nowhere,
    /// To those of this colour.
    Color(u64),
    /// Decided by the lists of resources of all processes.
    Open,
}

/// The contribution of a process to a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SplitEntry {
    part: SplitKey,
    key: i32,
}

impl SplitEntry {
    const LEN: usize = 16;
    const NOWHERE: u64 = u64::MAX;
    const OPEN: u64 = u64::MAX - 1;

    fn encode(self) -> [u8; Self::LEN] {
        let color = match self.part {
            SplitKey::Nowhere => Self::NOWHERE,
            SplitKey::Open => Self::OPEN,
            SplitKey::Color(color) => color,
        };
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&color.to_le_bytes());
        bytes[8..].copy_from_slice(&i64::from(self.key).to_le_bytes());
        bytes
    }

    fn is_open(&self) -> bool {
        self.part == SplitKey::Open
    }
}

fn decode(bytes: &[u8]) -> Vec<SplitEntry> {
    let ballot = |bytes: &[u8]| SplitEntry {
        part: match word_at(bytes, 0) {
            SplitEntry::NOWHERE => SplitKey::Nowhere,
            SplitEntry::OPEN => SplitKey::Open,
            color => SplitKey::Color(color),
        },
        key: word_at(bytes, 1) as i32,
    };
    bytes.chunks_exact(SplitEntry::LEN).map(ballot).collect()
}

/// The members of `group` with this colour, in the order that the split gives them.
fn elect(group: &Group, ballots: &[SplitEntry], color: u64) -> Group {
    let mut chosen: Vec<(i32, u32)> = ballots
        .iter()
        .zip(0u32..)
        .filter(|(ballot, _)| ballot.part == SplitKey::Color(color))
        .map(|(ballot, rank)| (ballot.key, rank))
        .collect();
    chosen.sort_unstable();
    let peers = chosen.into_iter().filter_map(|(_, rank)| group.peer(rank));
    Group::compact(peers.collect())
}

/// The instances of resources that a process is restricted to, the largest first: what an unguided
/// split chooses from.
#[derive(Default)]
struct ResourceInstances {
    /// A colour for each; 0 colours in the list of a process that gave its part.
    colors: Vec<u64>,
    /// The type of resource of each colour.
    names: HashMap<u64, String>,
}

impl ResourceInstances {
    /// The node, and the instances below it; of several types of one extent the first.
    fn of(node: u32, resources: Vec<HwResource>) -> Self {
        let mut found: Vec<(HwInstance, String)> = resources
            .into_iter()
            .filter_map(|resource| Some((resource.instance?, resource.name)))
            .collect();
        found.sort_by_key(|(instance, _)| std::cmp::Reverse(instance.cpus));
        let mut places = Self::default();
        places.add(node.into(), SHARED_MEMORY.into());
        for (instance, name) in found {
            // No instance has 0 CPUs: its colour is none of a node.
            places.add(
                u64::from(instance.cpus) << 32 | u64::from(instance.first),
                name,
            );
        }
        places
    }

    fn add(&mut self, color: u64, name: String) {
        if let Entry::Vacant(free) = self.names.entry(color) {
            free.insert(name);
            self.colors.push(color);
        }
    }

    fn encode(&self) -> Vec<u8> {
        let words = std::iter::once(self.colors.len() as u64).chain(self.colors.iter().copied());
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// The colours of all processes in the order of their ranks, from what they encoded.
    fn decode_all(bytes: &[u8]) -> Vec<Vec<u64>> {
        let mut words = bytes.chunks_exact(8).map(|word| word_at(word, 0));
        let mut all = Vec::new();
        while let Some(count) = words.next() {
            all.push(words.by_ref().take(count as usize).collect());
        }
        all
    }
}

/// Gives every open ballot its colour: the first in its process's list that not all processes have,
/// so that the parts are as large as can be and each is smaller than the whole. `lists` are encoded
/// [`ResourceInstances`], one for each ballot.
fn settle(ballots: &mut [SplitEntry], lists: &[u8]) {
    let lists = ResourceInstances::decode_all(lists);
    let mut holders: HashMap<u64, usize> = HashMap::new();
    for color in lists.iter().flatten() {
        *holders.entry(*color).or_default() += 1;
    }
    let all = ballots.len();
    for (ballot, list) in ballots.iter_mut().zip(&lists) {
        if ballot.is_open() {
            let chosen = list.iter().find(|color| holders[color] < all);
            ballot.part = chosen.map_or(SplitKey::Nowhere, |color| SplitKey::Color(*color));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{job, set_resources};

    fn resource(name: &str, instance: Option<(u32, u32)>) -> HwResource {
        HwResource {
            name: name.into(),
            instance: instance.map(|(first, cpus)| HwInstance { first, cpus }),
        }
    }

    /// On a node of 16 CPUs: two packages of two NUMA nodes, whose L3 caches are theirs, of four
    /// cores.
    fn resources(first: u32, cpus: u32) -> Vec<HwResource> {
        let within =
            |size: u32| (first % size + cpus <= size).then_some((first / size * size, size));
        vec![
            resource("Machine", within(16)),
            resource("Package", within(8)),
            resource("NUMANode", within(4)),
            resource("L3Cache", within(4)),
            resource("Core", within(1)),
        ]
    }

    fn bound_to(first: u32, cpus: u32) -> ResourceInstances {
        ResourceInstances::of(0, resources(first, cpus))
    }

    /// The name of what each process is told, and its part as the lowest rank in it.
    fn settled(places: &[ResourceInstances]) -> Vec<Option<(&str, usize)>> {
        let open = SplitEntry {
            part: SplitKey::Open,
            key: 0,
        };
        let mut ballots = vec![open; places.len()];
        let lists: Vec<u8> = places.iter().flat_map(ResourceInstances::encode).collect();
        settle(&mut ballots, &lists);
        let part =
            |(ballot, places): (&SplitEntry, &'_ ResourceInstances)| -> Option<(u64, String)> {
                let SplitKey::Color(color) = ballot.part else {
                    return None;
                };
                Some((color, places.names[&color].clone()))
            };
        let parts: Vec<_> = ballots.iter().zip(places).map(part).collect();
        let name = |(color, name): &(u64, String)| {
            let lowest = parts
                .iter()
                .position(|part| part.as_ref().is_some_and(|(other, _)| other == color));
            let known = ["Package", "NUMANode", "Core", SHARED_MEMORY];
            (
                *known.iter().find(|known| **known == name).unwrap(),
                lowest.unwrap(),
            )
        };
        parts.iter().map(|part| part.as_ref().map(name)).collect()
    }

    #[test]
    fn an_unguided_split_takes_the_largest_resource_that_parts_the_processes() {
        let package = Some(("Package", 0));
        let other = Some(("Package", 2));
        let spread = [
            bound_to(0, 1),
            bound_to(5, 1),
            bound_to(8, 1),
            bound_to(15, 1),
        ];
        assert_eq!(settled(&spread), [package, package, other, other]);
        let node = Some(("NUMANode", 0));
        let other = Some(("NUMANode", 1));
        assert_eq!(settled(&[bound_to(0, 2), bound_to(4, 1)]), [node, other]);
        let first = Some(("Core", 0));
        assert_eq!(
            settled(&[bound_to(2, 1), bound_to(2, 1), bound_to(3, 1)]),
            [first, first, Some(("Core", 2))]
        );
    }

    #[test]
    fn who_shares_all_or_is_restricted_to_nothing_is_in_no_part() {
        assert_eq!(settled(&[bound_to(0, 4), bound_to(0, 4)]), [None, None]);
        assert_eq!(
            settled(&[bound_to(0, 8), bound_to(0, 16), bound_to(2, 1)]),
            [Some(("Package", 0)), None, Some(("Package", 0))]
        );
    }

    #[test]
    fn lists_that_differ_still_give_every_process_a_part_of_those_who_chose_alike() {
        // A container shows the second process no caches and NUMA nodes.
        let bare = ResourceInstances::of(
            0,
            vec![
                resource("Machine", Some((0, 16))),
                resource("Core", Some((1, 1))),
            ],
        );
        assert_eq!(
            settled(&[bound_to(0, 1), bare, bound_to(2, 1)]),
            [
                Some(("Package", 0)),
                Some(("Core", 1)),
                Some(("Package", 0))
            ]
        );
        assert_eq!(
            settled(&[ResourceInstances::default(), bound_to(2, 1)]),
            [None, Some((SHARED_MEMORY, 1))]
        );
    }

    #[test]
    fn ballots_pass_encoding() {
        for part in [
            SplitKey::Nowhere,
            SplitKey::Open,
            SplitKey::Color(0),
            SplitKey::Color(7 << 32 | 3),
        ] {
            let ballot = SplitEntry { part, key: -5 };
            assert_eq!(decode(&ballot.encode()), [ballot]);
        }
    }

    /// Members of the new communicator by their ranks in the world, and what the info says.
    fn unguided(comm: &Comm, kind: Option<SplitType>) -> Option<(Vec<u32>, Option<String>)> {
        let info = Info::new();
        let made = comm
            .split_type(kind, 0, Some(&info), CallOrigin::default())
            .unwrap()?;
        Some((made.group().members().collect(), info.lookup(RESOURCE_TYPE)))
    }

    #[test]
    fn processes_that_see_different_machines_split_by_what_each_finds_and_none_waits_for_ever() {
        let unguided = |comm: &Comm| unguided(comm, Some(SplitType::HwUnguided));
        job(5, |world| {
            set_resources(match world.rank() {
                0 => resources(0, 1),
                1 => resources(8, 2),
                // Sees neither caches nor NUMA nodes.
                2 => vec![
                    resource("Machine", Some((0, 16))),
                    resource("Package", Some((8, 8))),
                    resource("Core", Some((9, 1))),
                ],
                3 => vec![resource("Machine", Some((0, 16))), resource("Core", None)],
                _ => resources(0, 16),
            });
            let package = |members: &[u32]| Some((members.to_vec(), Some("Package".to_string())));
            let wanted = match world.rank() {
                0 => package(&[0]),
                1 | 2 => package(&[1, 2]),
                _ => None,
            };
            assert_eq!(unguided(&world), wanted);
        });
    }

    #[test]
    fn a_process_that_keeps_out_of_a_split_takes_part_in_its_talk() {
        job(4, |world| {
            set_resources(resources(world.rank() * 2, 1));
            let out = world.rank() == 2;
            let found = unguided(&world, (!out).then_some(SplitType::HwUnguided));
            // Without it the others are fewer than all.
            let wanted = (!out).then(|| (vec![0, 1, 3], Some(SHARED_MEMORY.to_string())));
            assert_eq!(found, wanted);
        });
    }

    #[test]
    fn guided_splits_join_those_of_one_instance_in_the_order_of_their_keys() {
        job(4, |world| {
            set_resources(resources(world.rank() * 3, 1 + world.rank() % 2));
            let part = |name: &str, kind| {
                let info = Info::from_pairs([(RESOURCE_TYPE, name)]);
                let key = -(world.rank() as i32);
                let made = world
                    .split_type(Some(kind), key, Some(&info), CallOrigin::default())
                    .unwrap();
                made.map(|comm| comm.group().members().collect::<Vec<u32>>())
            };
            for kind in [SplitType::HwGuided, SplitType::ResourceGuided] {
                assert_eq!(part("Machine", kind), Some(vec![3, 2, 1, 0]));
                // Ranks run on the CPUs 0; 3 and 4; 6; 9 and 10.
                let package = if world.rank() < 3 {
                    vec![2, 1, 0]
                } else {
                    vec![3]
                };
                assert_eq!(part("Package", kind), Some(package));
                let node = [Some(vec![0]), None, Some(vec![2]), Some(vec![3])];
                assert_eq!(part("NUMANode", kind), node[world.rank() as usize]);
                assert_eq!(part("Planet", kind), None);
                assert_eq!(part(SHARED_MEMORY, kind), Some(vec![3, 2, 1, 0]));
            }
            let both = Info::from_pairs([(RESOURCE_TYPE, "Core"), (PROCESS_SET, "mpi://WORLD")]);
            let found = world.split_type(
                Some(SplitType::ResourceGuided),
                0,
                Some(&both),
                CallOrigin::default(),
            );
            assert_eq!(found.err().unwrap().class, Class::Info);
        });
    }

    #[test]
    fn the_sides_of_an_intercommunicator_face_each_other_by_instances() {
        job(4, |world| {
            // Ranks 0 and 3 on the first package, 1 and 2 on the second.
            set_resources(resources(
                if matches!(world.rank(), 0 | 3) { 0 } else { 8 },
                1,
            ));
            let low = world.rank() < 2;
            let half = world
                .split(low as i32, 0, CallOrigin::default())
                .unwrap()
                .unwrap();
            let peer = super::super::PeerLeader {
                comm: &world,
                rank: if low { 2 } else { 0 },
            };
            let inter = half
                .intercomm_create(0, Some(peer), 5, CallOrigin::default())
                .unwrap();
            let info = Info::new();
            let made = inter
                .split_type(
                    Some(SplitType::HwUnguided),
                    0,
                    Some(&info),
                    CallOrigin::default(),
                )
                .unwrap()
                .unwrap();
            let remote: Vec<u32> = made.remote_group().unwrap().members().collect();
            assert_eq!((made.size(), remote), (1, vec![3 - world.rank()]));
            assert_eq!(info.lookup(RESOURCE_TYPE).as_deref(), Some("Package"));
        });
    }
}
