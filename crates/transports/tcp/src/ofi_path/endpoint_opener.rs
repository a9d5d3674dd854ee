//! Opens endpoints of libfabric away from the rank: loading the library and opening a device take
//! tens of milliseconds, in which messages are to move.
//!
//! Owned by the transport. A thread lives while something is to be opened; what it made waits here
//! until the transport looks, which its bell asks for. Nothing is loaded before the first large
//! data, nor where the setting or the machine say that there is nothing to find.

use crate::epoll_wake::EpollWake;
use crate::ofi_path::hello::NotUsedReason;
use garonne_engine::api::Peer;
use garonne_engine::transport::WakeSource;
use garonne_ofi::endpoint::Endpoint;
use garonne_ofi::library::{Error, Library, Provider};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Which networks of libfabric large data may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OfiSetting {
    /// None.
    #[default]
    Off,
    /// Providers that are faster than TCP, if this host has a device for one.
    Fast,
    /// The provider of this name.
    Of(String),
}

impl OfiSetting {
    /// Why none is used, as far as that is known without asking the library.
    pub(crate) fn unused(&self, sealed: bool) -> Option<NotUsedReason> {
        match self {
            Self::Off => Some(NotUsedReason::Off),
            _ if sealed => Some(NotUsedReason::Sealed),
            Self::Fast if !has_device() => Some(NotUsedReason::NoDevice),
            _ => None,
        }
    }
}

/// Place where the kernel lists devices of fast networks.
const DEVICES: [&str; 2] = ["/sys/class/infiniband", "/sys/class/cxi"];

fn has_device() -> bool {
    let some = |directory| std::fs::read_dir(directory).is_ok_and(|mut list| list.next().is_some());
    DEVICES.into_iter().any(some)
}

type OpenResult = (Peer, Result<Endpoint, NotUsedReason>);

#[derive(Debug, Default)]
struct OpenRequests {
    wanted: VecDeque<(Peer, Option<IpAddr>)>,
    opened: Vec<OpenResult>,
    /// The thread looks for more before it ends.
    at_work: bool,
}

/// Opens endpoints of libfabric in a thread, since that takes long.
///
/// Owned by the transport. [`EndpointOpener::open`] asks for an endpoint, unless
/// [`EndpointOpener::unused`] says why there are none; [`EndpointOpener::take`] returns it, after
/// the bell has rung.
#[derive(Debug)]
pub(crate) struct EndpointOpener {
    setting: OfiSetting,
    /// Why no large data go by libfabric, if that is known.
    unused: Option<NotUsedReason>,
    requests: Arc<Mutex<OpenRequests>>,
    thread: Option<JoinHandle<()>>,
}

fn lock(requests: &Mutex<OpenRequests>) -> MutexGuard<'_, OpenRequests> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EndpointOpener {
    /// Returns an opener for networks that the setting allows.
    pub(crate) fn new(setting: OfiSetting, sealed: bool) -> Self {
        Self {
            unused: setting.unused(sealed),
            setting,
            requests: Arc::default(),
            thread: None,
        }
    }

    /// Returns why no large data go by libfabric, if that is known.
    pub(crate) fn unused(&self) -> Option<NotUsedReason> {
        self.unused
    }

    /// Has an endpoint opened for a peer that this side's address reaches.
    pub(crate) fn open(&mut self, wake: &Arc<EpollWake>, (peer, own): (Peer, Option<IpAddr>)) {
        let mut requests = lock(&self.requests);
        requests.wanted.push_back((peer, own));
        if std::mem::replace(&mut requests.at_work, true) {
            return;
        }
        drop(requests);
        if let Some(former) = self.thread.take() {
            let _ = former.join();
        }
        let (requests, fabrics, wake) = (self.requests.clone(), self.setting.clone(), wake.clone());
        let thread = garonne_transport::sys::without_signals(|| {
            std::thread::Builder::new()
                .name(String::from("garonne-fabric"))
                .spawn(move || work(&requests, &fabrics, &wake))
        });
        match thread {
            Ok(thread) => self.thread = Some(thread),
            Err(_) => {
                let mut requests = lock(&self.requests);
                requests.at_work = false;
                let wanted = std::mem::take(&mut requests.wanted);
                requests.opened.extend(
                    wanted
                        .into_iter()
                        .map(|(peer, _)| (peer, Err(NotUsedReason::NoProvider))),
                );
            }
        }
    }

    /// Returns what was opened since this was last asked.
    pub(crate) fn take(&mut self) -> Vec<OpenResult> {
        std::mem::take(&mut lock(&self.requests).opened)
    }
}

impl Drop for EndpointOpener {
    fn drop(&mut self) {
        lock(&self.requests).wanted.clear();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(requests: &Mutex<OpenRequests>, fabrics: &OfiSetting, wake: &EpollWake) {
    let mut library = None;
    loop {
        let wanted = {
            let mut requests = lock(requests);
            let wanted = requests.wanted.pop_front();
            requests.at_work = wanted.is_some();
            wanted
        };
        let Some((peer, own)) = wanted else { return };
        let library = library.get_or_insert_with(Library::load);
        let opened = open(library, fabrics, own);
        lock(requests).opened.push((peer, opened));
        wake.wake();
    }
}

fn open(
    library: &Result<Library, Error>,
    fabrics: &OfiSetting,
    own: Option<IpAddr>,
) -> Result<Endpoint, NotUsedReason> {
    let none = |_| NotUsedReason::NoProvider;
    let library = library.as_ref().map_err(|_| NotUsedReason::NoLibrary)?;
    let provider = match fabrics {
        OfiSetting::Off => return Err(NotUsedReason::Off),
        OfiSetting::Of(provider) => provider.clone(),
        OfiSetting::Fast => {
            let offers = library.offers(None, None).map_err(none)?.list();
            let fast = offers
                .into_iter()
                .find(Provider::is_fast)
                .ok_or(NotUsedReason::NoProvider)?;
            fast.provider
        }
    };
    // What stands on IP is to use the network that the two reach each other by.
    let offer = Provider {
        provider: provider.clone(),
        domain: String::new(),
    };
    let own = own.filter(|_| matches!(offer.base(), "tcp" | "udp" | "sockets" | "net"));
    let own = own.map(|own| own.to_string());
    let offers = library
        .offers(Some(&provider), own.as_deref())
        .map_err(none)?;
    Endpoint::open_for_reads(&offers).map_err(none)
}
