//! Setup of a communicator's segment: rank 0 allocates it and broadcasts its address, and all use
//! it if all could attach.
//!
//! The first collective of a communicator begins the setup, blocking or not. The setup advances as
//! a stepper, since a nonblocking call must not wait for it: a blocking call waits, and nonblocking
//! calls that begin meanwhile wait in their requests ([`super::shm_nonblocking`]). All members call
//! their collectives in one order, so all begin with the same messages: one broadcast and one
//! reduction of a byte.

use super::comm_segment::{self, ADDRESS_BYTES, Attachment, SegmentAddress};
use super::execute::{CollContext, InFlight, RunningSchedule};
use crate::comm::Comm;
use crate::error::{Error, Result};
use garonne_coll::algo;
use garonne_coll::algo::Reduction;
use garonne_coll::call_tag::{CallId, CallSeries, CollectiveKind};
use garonne_coll::plan::PlanRecorder;
use garonne_coll::segment_allocator::AllocatedSegment;
use garonne_coll::temp_buffer::{NoMemory, scratch};
use garonne_coll::typed_buffer::{ByteElements, ElementLayout, ReduceOp};
use garonne_engine::api::CallOrigin;
use garonne_progress::messaging::{Messaging, Stepper};
use garonne_sync::shm::Segment;
use garonne_sync::user::{Data, Scratch, UserMem};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The setup of one communicator's segment. Its [`CommSegment`](super::comm_segment::CommSegment)
/// owns it; the engine steps it until [`SegmentSetup::is_over`].
#[derive(Debug)]
pub(super) struct SegmentSetup {
    phase: Mutex<SetupPhase>,
    over: AtomicBool,
}

/// The phase of a setup. `Over` keeps no communicator alive.
enum SetupPhase {
    /// Rank 0 broadcasts the address of the segment.
    AddressBcast(Box<AddressBcast>),
    /// All agree whether everybody has attached.
    AttachAgreement(Box<AttachAgreement>),
    /// Over; what went wrong, until somebody takes it.
    Over(Option<Error>),
}

struct AddressBcast {
    ctx: CollContext<'static>,
    running: Arc<RunningSchedule>,
    words: Scratch,
    coll_heap: Option<Segment>,
    allocated: Option<AllocatedSegment>,
}

struct AttachAgreement {
    comm: Comm,
    running: Arc<RunningSchedule>,
    words: Scratch,
    attachment: Option<Attachment>,
}

impl std::fmt::Debug for SetupPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SetupPhase::AddressBcast(_) => "Naming",
            SetupPhase::AttachAgreement(_) => "Agreeing",
            SetupPhase::Over(_) => "Over",
        })
    }
}

/// Starts a schedule of setup messages.
pub(super) fn running(
    ctx: &CollContext<'static>,
    plan: impl FnOnce(&mut PlanRecorder) -> Result<(), NoMemory>,
) -> Result<Arc<RunningSchedule>> {
    let mut recorder = PlanRecorder::new(ctx.me(), ctx.size(), 0);
    plan(&mut recorder)?;
    Ok(RunningSchedule::new(
        ctx.clone(),
        recorder.finish(),
        InFlight::default(),
    ))
}

impl AddressBcast {
    fn begin(comm: &Comm, ctx: CollContext<'static>) -> Result<Self> {
        let heap = comm_segment::coll_heap(comm);
        let (allocated, name) = comm_segment::allocate(comm, heap.as_ref());
        let words = scratch(ADDRESS_BYTES as u64)?;
        words.mem().write(0, &name.to_bytes());
        let data = Data::contiguous(words.mem(), ADDRESS_BYTES as u64);
        let running = running(&ctx, |p| algo::bcast::binomial(p, 0, &data))?;
        Ok(Self {
            ctx,
            running,
            words,
            coll_heap: heap,
            allocated,
        })
    }

    /// The name has come.
    fn end(&mut self) -> Result<AttachAgreement> {
        let (comm, mem) = (self.ctx.comm().clone(), self.words.mem());
        let mut bytes = [0; ADDRESS_BYTES];
        mem.read(0, &mut bytes);
        let name = SegmentAddress::from_bytes(&bytes);
        let place = comm_segment::attach(&comm, self.coll_heap.take(), name, self.allocated.take());
        // All must have got there if anybody is to use it: the least of all answers.
        let words = scratch(1)?;
        words.mem().write(0, &[u8::from(place.is_some())]);
        let r = Reduction {
            fold: &LogicalAnd,
            input: words.mem(),
            output: words.mem(),
            count: 1,
        };
        let running = running(&self.ctx, |p| algo::allreduce::recursive_doubling(p, &r))?;
        Ok(AttachAgreement {
            comm,
            running,
            words,
            attachment: place,
        })
    }
}

impl AttachAgreement {
    fn end(&mut self) {
        let mut all = [0];
        self.words.mem().read(0, &mut all);
        let place = self.attachment.take().filter(|_| all == [1]);
        comm_segment::finish_setup(&self.comm, place);
    }
}

impl SegmentSetup {
    /// Begins on behalf of a program's call. Its messages bear one number, whichever call that is,
    /// of those that are counted apart. Their kind keeps them apart from that call's own, and the
    /// series from what `garonne who` compares: a rank may be ahead of another, in the call itself,
    /// without a mistake.
    pub fn begin(comm: &Comm, origin: CallOrigin) -> Arc<Self> {
        let call = CallId::new(1, CallSeries::Nonblocking, CollectiveKind::Internal);
        let naming = AddressBcast::begin(comm, CollContext::owned(comm, call, origin));
        let phase = match naming {
            Ok(naming) => SetupPhase::AddressBcast(Box::new(naming)),
            Err(error) => {
                comm_segment::finish_setup(comm, None);
                SetupPhase::Over(Some(error))
            }
        };
        Arc::new(Self {
            over: AtomicBool::new(matches!(phase, SetupPhase::Over(_))),
            phase: Mutex::new(phase),
        })
    }

    fn phase(&self) -> MutexGuard<'_, SetupPhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the setup is over.
    pub fn is_over(&self) -> bool {
        // SYNC(collective): Acquire what was found.
        self.over.load(Ordering::Acquire)
    }

    /// Takes the error of the setup; later calls return `None`.
    pub fn take_error(&self) -> Option<Error> {
        match &mut *self.phase() {
            SetupPhase::Over(error) => error.take(),
            _ => None,
        }
    }
}

impl Drop for SegmentSetup {
    fn drop(&mut self) {
        if !self.is_over() {
            // The engine is being taken down, and may still write there: better lost than reused.
            let mut phase = self.phase();
            std::mem::forget(std::mem::replace(&mut *phase, SetupPhase::Over(None)));
        }
    }
}

impl SetupPhase {
    fn comm(&self) -> Option<Comm> {
        match self {
            SetupPhase::AddressBcast(naming) => Some(naming.ctx.comm().clone()),
            SetupPhase::AttachAgreement(agreeing) => Some(agreeing.comm.clone()),
            SetupPhase::Over(_) => None,
        }
    }

    /// Goes as far as it can; the next phase, or the error that ends all.
    fn advance(&mut self) -> Option<Result<SetupPhase>> {
        let ended = |running: &RunningSchedule| running.advance().then(|| running.error());
        match self {
            SetupPhase::AddressBcast(naming) => ended(&naming.running).map(|error| match error {
                Some(error) => Err(error),
                None => naming
                    .end()
                    .map(|agreeing| SetupPhase::AttachAgreement(Box::new(agreeing))),
            }),
            SetupPhase::AttachAgreement(agreeing) => {
                ended(&agreeing.running).map(|error| match error {
                    Some(error) => Err(error),
                    None => {
                        agreeing.end();
                        Ok(SetupPhase::Over(None))
                    }
                })
            }
            SetupPhase::Over(_) => None,
        }
    }
}

impl Stepper for SegmentSetup {
    fn step(&self, _host: &dyn Messaging) -> bool {
        let mut phase = self.phase();
        while let Some(next) = phase.advance() {
            *phase = next.unwrap_or_else(|error| {
                if let Some(comm) = phase.comm() {
                    comm_segment::finish_setup(&comm, None);
                }
                SetupPhase::Over(Some(error))
            });
        }
        if matches!(*phase, SetupPhase::Over(_)) {
            // SYNC(collective): Release what was found.
            self.over.store(true, Ordering::Release);
        }
        self.is_over()
    }

    fn runs_user_code(&self) -> bool {
        false
    }
}

/// Whether both operands are 1: bytes, one to an element.
#[derive(Debug)]
struct LogicalAnd;

impl ReduceOp for LogicalAnd {
    fn fold(&self, left: UserMem, into: UserMem, count: u64) {
        for index in 0..count as isize {
            let mut bytes = [0; 2];
            left.read(index, &mut bytes[..1]);
            into.read(index, &mut bytes[1..]);
            into.write(index, &[bytes[0] & bytes[1]]);
        }
    }

    fn commutative(&self) -> bool {
        true
    }

    fn user(&self) -> bool {
        false
    }

    fn shape(&self) -> &dyn ElementLayout {
        &ByteElements
    }

    fn keep(&self) -> Arc<dyn ReduceOp> {
        Arc::new(LogicalAnd)
    }
}
