//! A transport module that wraps another transport and injects faults, by a seed.
//!
//! Two kinds are within what a transport may do, and every engine takes them: rooms are refused
//! although there are some, and polls find nothing although there is something. The others break a
//! transport's promises, so that tests see what notices: packets are lost, or their headers are
//! changed. Counts are parts of a thousand.
//!
//! Options of the module: `seed=N,full=N,late=N,lost=N,damaged=N`, in any order; what is not named
//! is 0.

use garonne_engine::api::Peer;
use garonne_engine::transport::{PacketClass, PacketHeader};
use garonne_transport::dynamic::{DynTransport, boxed};
use garonne_transport::interceptor::{Intercepted, Interceptor};
use garonne_transport::module::ModuleContext;
use garonne_transport::transport_module;

/// Faults of a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectedFaults {
    /// Seed of all that follows.
    pub seed: u64,
    /// Claims that are answered `Full`, of a thousand.
    pub full: u64,
    /// Polls that find nothing, of a thousand.
    pub late: u64,
    /// Packets that are lost, of a thousand.
    pub lost: u64,
    /// Packets whose header is changed, of a thousand.
    pub damaged: u64,
}

impl InjectedFaults {
    /// Reads the options of the module.
    ///
    /// # Errors
    /// The word that is none of them.
    pub fn parse(options: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for word in options.split(',').filter(|word| !word.is_empty()) {
            let unknown =
                || format!("'{word}' is none of seed=N, full=N, late=N, lost=N, damaged=N");
            let (name, number) = word.split_once('=').ok_or_else(unknown)?;
            let number = number.parse().map_err(|_| unknown())?;
            let field = match name {
                "seed" => &mut faults.seed,
                "full" => &mut faults.full,
                "late" => &mut faults.late,
                "lost" => &mut faults.lost,
                "damaged" => &mut faults.damaged,
                _ => return Err(unknown()),
            };
            if name != "seed" && number > 1000 {
                return Err(format!("'{word}' is more than 1000 of a thousand"));
            }
            *field = number;
        }
        Ok(faults)
    }
}

/// Injects faults into a transport.
#[derive(Debug)]
pub struct FaultInjector {
    faults: InjectedFaults,
    random: u64,
}

impl FaultInjector {
    /// Returns an injector of these faults at a rank; each rank has others by the same seed.
    pub fn new(faults: InjectedFaults, me: Peer) -> Self {
        Self {
            random: faults.seed ^ u64::from(me).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            faults,
        }
    }

    /// Returns a random number: SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, of_a_thousand: u64) -> bool {
        of_a_thousand > 0 && self.next() % 1000 < of_a_thousand
    }
}

impl Interceptor for FaultInjector {
    fn refuses_room(&self) -> bool {
        self.faults.full > 0
    }

    fn on_claim(&mut self, _peer: Peer, _len: usize, _class: PacketClass) -> bool {
        !self.happens(self.faults.full)
    }

    fn on_send(&mut self, _peer: Peer, header: &mut PacketHeader) -> bool {
        if self.happens(self.faults.damaged) {
            let bit = 1 << (self.next() % 32);
            match self.next() % 4 {
                0 => header.context ^= bit,
                1 => header.sequence ^= bit,
                2 => header.source ^= bit,
                _ => header.kind ^= bit as u8 | 1,
            }
        }
        !self.happens(self.faults.lost)
    }

    fn on_poll(&mut self) -> bool {
        !self.happens(self.faults.late)
    }
}

fn create(context: ModuleContext<'_>) -> Result<Box<dyn DynTransport>, String> {
    let faults = InjectedFaults::parse(context.options)?;
    let inner = context
        .inner
        .ok_or("it wraps a transport, and was given none")?;
    let injector = FaultInjector::new(faults, context.me);
    Ok(boxed(Intercepted::new(inner, injector)))
}

transport_module!(create);
