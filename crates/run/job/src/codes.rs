//! The error codes of Garonne: one table that messages cite and `garonne explain` expands.
//!
//! G01xx are errors of MPI calls, G02xx of jobs and the agent, G03xx of resources of this machine,
//! G04xx of the Rust interface. A code, once published, keeps its meaning.

/// The long story of one error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode {
    /// For instance `G0201`.
    pub id: &'static str,
    /// Title: one line, as in the error message.
    pub title: &'static str,
    /// What happened.
    pub what: &'static str,
    /// Place to look at.
    pub whence: &'static str,
    /// What to do.
    pub todo: &'static str,
}

/// Finds a code by its name, in any case, with or without the leading `G`.
pub fn find(name: &str) -> Option<&'static ErrorCode> {
    let digits = name.trim().trim_start_matches(['g', 'G']);
    CODES
        .iter()
        .find(|code| code.id[1..] == format!("{digits:0>4}"))
}

macro_rules! codes {
    ($($id:ident: $title:literal, $what:literal, $whence:literal, $todo:literal;)*) => {
        $(#[doc = $title] pub const $id: &str = stringify!($id);)*
        /// All codes, in order.
        pub const CODES: &[ErrorCode] = &[$(ErrorCode { id: stringify!($id), title: $title, what: $what, whence: $whence, todo: $todo },)*];
    };
}

codes! {
    G0101: "invalid argument of an MPI call",
        "A call received an argument that the standard does not allow: a negative count, a null pointer with a count above zero, a handle of another kind.",
        "The message names the call, the argument and the place in the program that called.",
        "Correct the argument at that place.";
    G0102: "invalid rank",
        "A call named a rank that its communicator does not have.",
        "The message names the call, the rank, the communicator and its size.",
        "Ranks go from 0 to size - 1; MPI_PROC_NULL and, for receives, MPI_ANY_SOURCE are the only others.";
    G0103: "invalid tag",
        "A call used a tag that is negative or above MPI_TAG_UB.",
        "The message names the call and the tag.",
        "Use tags from 0 to MPI_TAG_UB; MPI_ANY_TAG is for receives and probes only.";
    G0104: "invalid communicator, group or other handle",
        "A call received a handle that is null, was freed, or belongs to another kind of object.",
        "The message names the call and the handle.",
        "Look for a handle that is used after it was freed, or before it was made.";
    G0105: "invalid datatype",
        "A call used a datatype that is not committed, was freed, or cannot be used there.",
        "The message names the call and the datatype.",
        "Commit derived datatypes with MPI_Type_commit before using them in communication.";
    G0106: "function not implemented yet",
        "The program called an MPI function that this version of Garonne exports but does not implement.",
        "The message names the function; docs/user/conformance.md lists all that are not there yet (an install has it in share/doc/garonne).",
        "Use another function, or a version of Garonne whose conformance list has it.";
    G0107: "message truncated",
        "A message was larger than the receive that matched it. No byte beyond the receive buffer was written.",
        "The message shows both sides: rank, call, count, datatype, bytes, communicator, and the places in the program.",
        "Make the receive at least as large as the send, or learn the size first with MPI_Mprobe and MPI_Get_count.";
    G0108: "MPI called before MPI_Init or after MPI_Finalize, or initialised twice",
        "A communication call was made outside the part of the program in which MPI is usable, or MPI_Init was called a second time.",
        "The message names the call.",
        "Call MPI_Init or MPI_Init_thread first; call nothing but the queries that the standard allows after MPI_Finalize. MPI_COMM_WORLD and MPI_COMM_SELF do not exist where only MPI_Session_init was called: make a communicator by MPI_Comm_create_from_group of the group of mpi://WORLD.";
    G0109: "MPI called in a forked child",
        "A process that was made by fork() called MPI. Its parent's communication state is not the child's to use.",
        "The message names the call and both processes.",
        "Call MPI only in the process that called MPI_Init; start other programs with exec after fork.";
    G0110: "buffer is not host memory",
        "A call received a pointer to device memory, which this version cannot reach.",
        "The message names the call, the pointer, the count, and the driver that said so.",
        "Copy the data to host memory first, or use managed memory that the host can read.";
    G0111: "invalid operation for the datatype",
        "A reduction was asked to combine elements of a datatype for which its operation is not defined.",
        "The message names the operation and the datatype.",
        "Use an operation that the standard defines for that datatype, or make one with MPI_Op_create.";
    G0112: "ranks disagree about a collective",
        "The members of a communicator called different collectives, or the same with different roots or sizes.",
        "The message names the communicator, the number of the collective, and each side, the smallest first: its ranks, how many of all they are, what they called and where. Ranks that had not come yet are left out.",
        "Every rank of the communicator must call the same collectives in the same order.";
    G0113: "the other side's buffer is not there",
        "A message was about to be read from its sender's memory, which is not mapped (any more): the buffer was freed or unmapped before the send was complete, or it is a device's.",
        "The message names the sender with its call and line, and the receiver.",
        "Keep the buffer of a nonblocking send until MPI_Wait or MPI_Test has completed it; copy device memory to the host first.";
    G0115: "the types of message and receive differ",
        "A receive got a message of other elements than it was made for: doubles sent, say, and 64-bit integers received. The bytes have moved as they are. Only found where types are checked (GARONNE_CHECK=types).",
        "The message shows both sides: rank, call, count, datatype, communicator, and the places in the program.",
        "Use the same type on both sides, or equal sequences of basic types. Elements of MPI_BYTE and MPI_PACKED agree with all.";
    G0116: "communicator revoked",
        "A member of the communicator has called MPIX_Comm_revoke, so all operations on it end, at all members.",
        "The message names the communicator and the call.",
        "Free it, and go on with the communicator that MPIX_Comm_shrink gives. MPIX_Comm_agree and MPIX_Comm_shrink still work on it.";
    G0117: "a process of the communicator has died",
        "The job survives the deaths of its ranks (--survive), and a call needed one that has died. A collective needs all members; a receive from any source needs those whose death the program has not acknowledged.",
        "The message names the process; MPIX_Comm_get_failed names all that are dead.",
        "Acknowledge deaths (MPIX_Comm_ack_failed), or revoke the communicator and go on with the one that MPIX_Comm_shrink gives. Programs that cannot go on run without --survive.";
    G0120: "MPI_Finalize waits for a message that nobody will receive",
        "A rank sent a message, freed the request of the send (or sent from a buffer), and waits in MPI_Finalize for the send to end. Its receiver has called MPI_Finalize or ended, so the send never will. The message is said once; the rank goes on waiting.",
        "The message names the send with its place, its size, tag and communicator, and what became of the receiver.",
        "Receive every message that is sent. To free the request of a send does not take the message back; a send cannot be cancelled.";
    G0124: "messages were never received",
        "All ranks had called MPI_Finalize (or a rank had ended its last session), and there were messages that nobody had received. The standard wants every message received by then. Only found where messages are checked (GARONNE_CHECK=messages); the job is ended then, whatever error handlers are set.",
        "The message names each message with its sender, size, tag and communicator, and the line that sent it, if the sender still remembers.",
        "Receive every message that is sent, or do not send it. A receive with another tag or source, or on another communicator, does not fit.";
    G0201: "a rank ended without MPI_Finalize",
        "A process that had called MPI_Init ended (by returning, by exit(), by an exception, or by a nonzero exit status) before MPI_Finalize. The other ranks would have waited for it for ever, so the job was ended.",
        "The line names the rank, its program, its process and its exit status; its own last words are printed before it.",
        "Mend what made that rank end. If it ends on purpose, call MPI_Finalize, or MPI_Abort to end the whole job with an exit code.";
    G0202: "MPI_Abort was called",
        "A rank asked for the end of the whole job, with the exit code that it named.",
        "The line names the rank and the code; what the rank printed before it says why. The job ends with that code, but with 1 for a code of which an exit status would keep nothing but 0: an aborted job is no success.",
        "Nothing is wrong with the job's start or its communication; look at the program's reason.";
    G0203: "different versions of Garonne in one job",
        "Two ranks of one job loaded libraries of different versions, or a library and `garonne` do not share a protocol version.",
        "The line names both versions and the ranks.",
        "Build all programs of the job against one installation, and check LD_LIBRARY_PATH and the wheels or containers in use.";
    G0204: "the agent of the job died",
        "The process that starts and watches the ranks was killed (by hand, or by the kernel when memory ran out). The launcher ended everything that was left.",
        "`dmesg` shows whether the kernel ran out of memory.",
        "Start the job again, with fewer ranks or less memory per rank if memory ran out.";
    G0205: "this rank's place is taken",
        "A second process wanted to be a rank that another running process already is.",
        "The line names the rank and the process that holds it.",
        "A rank is one MPI process. To start further MPI processes use `:` on the command line, or a larger -n.";
    G0206: "a rank was killed by a signal",
        "A signal ended a rank: a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), the kernel's out-of-memory killer or a person (SIGKILL). The job was ended.",
        "The line names the rank, its process and the signal; its last words are printed before it. After a crash or abort the functions of the program around the place follow, the innermost first, with lines if it was compiled with -g; not if the program handles the signal itself, and not with GARONNE_BACKTRACE=0. After a bad address (SIGSEGV, SIGBUS) the line also names the MPI call that the rank entered last, with its line, or those of its threads, of which any may be the one: either the crash is inside that call, then look at its buffers, or the program crashed after it. While a large message is open, the rank's helper moves its data beside the program: if the buffer of that message is bad, the helper crashes, and the call named is only where the program was.",
        "For a crash: look at the lines named; for the values of variables run the program under `garonne run -n N gdb -batch -ex run -ex 'thread apply all bt' --args program`, or with a sanitizer. With `GARONNE_BACKGROUND=0` nothing is moved beside the program, and a bad buffer of an open message crashes in the call that waits for it. A crash inside an MPI call whose buffer is memory of a graphics device is this, too: such memory cannot be passed yet; copy to host memory first. For SIGKILL: look at `dmesg`.";
    G0207: "a rank's program ended with an error",
        "A program exited with a status that is not zero. The job was ended with that status.",
        "The line names the rank, the program and the status.",
        "Look at what that program printed.";
    G0208: "the job ran out of time",
        "The time given with --timeout (or MPIEXEC_TIMEOUT) passed before the job ended. It was ended with exit code 124.",
        "The line names the ranks that were still running.",
        "Give more time, or find out what the ranks waited for with `garonne who` while the job runs.";
    G0209: "the connection to the agent broke",
        "A rank could not talk to the agent of its job any more.",
        "The line names the system's error.",
        "Usually the job is ending already; the first error printed is the one to look at.";
    G0210: "the program cannot be started",
        "The file is not there, is not executable, or its interpreter is missing.",
        "The line names the program, the directory and the system's reason.",
        "Check the path (programs without a slash are looked for in PATH, then in the working directory), `chmod +x`, and the first line of scripts.";
    G0211: "the command line is not understood",
        "An option or its value is not one that `garonne run` knows.",
        "The line names the option, and the one that was probably meant.",
        "`garonne run --help` lists all options. Options of the program go after its name.";
    G0212: "the environment names a job that is not there",
        "The environment says that this process is a rank, but no agent of that job can be reached, or it is not this process's: it serves another user, or has no such rank.",
        "The line names the job and the variable, or the two users.",
        "All ranks of a job run as the user who started it. If the variables were inherited by accident (nohup, screen, a service), unset GARONNE_FD, GARONNE_AGENT and GARONNE_RANK to run as a world of one.";
    G0213: "a rank left its wrapper in the dark",
        "A registered process disappeared and nobody could say with which status; it had not called MPI_Finalize. The job was ended.",
        "The line names the rank and the process.",
        "Look at what the rank printed; run it without its wrapper to see its status.";
    G0214: "a rank never called MPI_Init",
        "A rank ended well without calling MPI_Init, every other rank has ended or waits in MPI, and nothing is left that could wake them. The job was ended.",
        "The line names the rank that did not come, its program, and a rank that waits; `garonne who` would have shown in which call.",
        "All ranks of a job take part in MPI or none does. Look why that program ended early (a usage message, a wrong branch of a script), or start it with a smaller -n.";
    G0215: "another launcher's rank",
        "A launcher started the process as one of several ranks, in a way that this version cannot join. Every one of them would have been rank 0 of a world of one.",
        "The line names the launcher, the rank and the number of ranks, what is missing, and a way of starting that can be joined if there is one.",
        "docs/user/launchers.md has a recipe for each launcher that is understood. Or start the program with `garonne run -n N` (Garonne's own mpirun: `mpirun --version` tells whose it is). Something between the launcher and the program, such as a script in Python, may close descriptors or drop variables by which the launcher is asked. If worlds of one are what you want, unset the variables that the line names.";
    G0216: "an agent could not be started on another host",
        "The command that starts the agent of a host (ssh, or what --launcher names) failed, or the agent did not reach the launcher at any of its addresses. Nothing runs any more.",
        "The line names the host; what the command or the agent said is behind it.",
        "Try `ssh HOST true`: it must work without a password. The same installation of Garonne must be at the same path on all hosts. If the agent runs but cannot reach the launcher, a firewall is between them: ports of its own choice must be open from every host to the launcher's and between hosts. A host with no address but link-local ones (fe80::) needs another.";
    G0217: "the connection to a host broke",
        "The agent of another host was killed, or its host or the network between is gone. The job was ended everywhere; agents that are cut off end their ranks by themselves.",
        "The line names the host and its ranks.",
        "A connection that ended at once means that the agent or the host went down; one that was silent for 20 seconds means a broken network. Links that fail for up to ten seconds are waited for. On a host that has joined (`garonne join`) the line names the signal that ended it there.";
    G0218: "a second MPI program in one place of a job on several hosts",
        "A script ran two MPI programs one after the other as one rank. On one host the second joins a new world; between hosts that is not there yet.",
        "The line names the rank.",
        "Start a job for each program.";
    G0219: "the launcher's exchange failed",
        "Ranks that another launcher has started find each other through a table that it keeps for them (PMI, PMIx). The launcher did not answer, refused a request, or answered what its protocol does not have.",
        "The line names the launcher, and shows its answer.",
        "If the launcher has ended the job, its own words come first. Otherwise start the program in another way that docs/user/launchers.md has, and report the line.";
    G0220: "no agent for ranks that another launcher started",
        "The first rank of each host starts an agent there (`garonne agent`), which holds the shared memory, watches the ranks and ends with them. It could not be started, or has ended at once.",
        "The line names the host's rank and where `garonne` was looked for.",
        "Install the library with its command (`./x install`, or a package that has both), or put `garonne` into PATH on every host.";
    G0221: "ranks that share a host do not share its network",
        "The launcher says that ranks run on one host, but they live in different network namespaces (containers, one for each rank), so they cannot meet under one agent.",
        "The line names two such ranks.",
        "Run all ranks of a host in one container, or give containers the host's network (`--net=host`), or tell the launcher that they are different hosts.";
    G0222: "a rank did not come to its agent",
        "Ranks that another launcher has started meet under one agent on each host. One of them took part in the launcher's exchange but did not reach the agent: it died in MPI_Init, or hangs there.",
        "The line names the ranks that are missing.",
        "Look at what those ranks printed, and at the launcher's words about them.";
    G0223: "the launcher of the ranks is gone",
        "The launcher's process that started the ranks of a host (hydra's proxy, slurmstepd, prted) was killed or has ended, and the ranks went on. They would have run without anybody who ends them.",
        "The line names the launcher; `dmesg` shows whether the kernel ran out of memory.",
        "Start the job again. A wrapper that puts its program into the background and ends has the same effect: let it wait, or execute the program.";
    G0224: "no key for ranks on several hosts",
        "A launcher that gives ranks nothing but RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torchrun, Kubernetes) has started them on several hosts. Without a key that only they know, anybody who reaches the port could take part.",
        "The line names the variable and the file.",
        "Put a key of 64 hexadecimal digits into a file that the ranks of all hosts can read and nobody else (`openssl rand -hex 32 > FILE; chmod 600 FILE`; on Kubernetes a secret), and name it by GARONNE_KEY_FILE.";
    G0225: "a setting is not understood",
        "A variable of the environment that changes what the library does has a value that it does not know.",
        "The line names the variable, its value, and the values that there are.",
        "`garonne why settings` lists all settings. Unset the variable for the default.";
    G0226: "the join key is not understood",
        "What was given to `garonne join` is not a key that `garonne run --join-key` has printed: a letter is wrong, a part is missing, or it is something else. Or there was none.",
        "The line says what is wrong with it, and never shows it.",
        "Copy the whole word behind `garonne join` again. `garonne join -` reads it from standard input, and GARONNE_JOIN_KEY names a file that holds it.";
    G0227: "this host has no place in the job",
        "`garonne join` reached nobody who takes its key, or the job takes no more hosts: the job is over, has begun already, or as many hosts as it asked for have come. A key admits to one job only.",
        "The line says which, with the addresses that were tried. `nobody listens there`: that job has ended, or another host has that address. `it cut the call off`: another job, or another program, has the port now. `it cannot be reached`, `no answer`: no way leads there, or a firewall is between.",
        "Use the key of the job that waits now. If it is right, its port must be open for calls from this host: `--join-port` chooses one, and `--join-address` says under which name or address others find the host.";
    G0228: "hosts that were to join did not come",
        "`garonne run --join-key` waited for hosts, and fewer than asked for had come when the time was over, or whoever started the job ended it. Nothing was started.",
        "The line says how many came, and their names.",
        "Run `garonne join KEY` on each host while the job waits. `--join-hosts` says for how many hosts it waits, `--join-timeout` for how many seconds.";
    G0229: "two hosts cannot reach each other",
        "Two ranks have messages for each other, and neither of their hosts reaches the other: not one of their addresses answers, in either direction. One direction would do, or a third host of the job that reaches both, or one that both reach, at ports that the system chooses: there is none, or it has as many connections to pass on as it may.",
        "The line names both hosts and their ranks, and the addresses that were tried; or it says that connections are made and bring nothing: then packets of 1,280 bytes are lost on the way, and longer ones.",
        "Where connections bring nothing, set the MTU of the hosts' interfaces to what the network between them carries. Else open ports: those of one of the two for calls from the other, or those of the job's own host for calls from both (not the port of its key alone). Or add a host to the job that reaches both or that both reach: it passes their connections on, and need not have ranks (docs/user/networks.md, \"Hosts without a common network\").";
    G0230: "a strategy cannot be loaded",
        "GARONNE_STRATEGY names a file that is to decide when, in which order and which way messages leave, and it is no module for this library.",
        "The line names the file and the reason: it is not there (on this host), it is no library, it lacks a library of its own, it exports no garonne_strategy_v1, or it is of another version.",
        "`garonne strategy FILE` loads and examines it. Compile it with -shared -fPIC and this version's garonne_strategy.h; the file must be at the same place on every host. Unset GARONNE_STRATEGY for the built-in strategy.";
    G0231: "ranks disagree about a setting",
        "A variable of the environment that must be the same for all ranks of a job is not: one rank encrypts what it says to other hosts and another does not, say.",
        "The line names the ranks, the variable, and what it says on each side.",
        "Set it for the whole job: in the environment of `garonne run`, by `-x NAME`, or in the file that the launcher passes to all hosts. A shell's start file on one host that sets it makes the difference, too.";
    G0232: "nothing changes for a network of the job",
        "`garonne network drain` was asked to leave a network alone that is needed. It is all that a host has in use, or all that two hosts have in common between which no third host leads. Or it is the only one by which an agent reaches the one that it reports to. Networks count that ranks may use (GARONNE_NETWORKS) and that have a link. Or `garonne network add` was asked to use a part of a network that is left alone as a whole. Nothing has changed.",
        "The line names the network and the hosts. Whether routers lead from one network to another is not known beforehand: where both hosts have one, they are taken to reach each other.",
        "Use another network first (`garonne network add`), also one that the hosts have got since the job began; or leave it alone when the job is over.";
    G0233: "a transport module cannot be used",
        "`--transport-module` or GARONNE_TRANSPORT_MODULES names a file that all packets of the ranks are to go through, and it is no module for this build; or the module refuses its options.",
        "The line names the file and the reason: it is not there (on this host), it is no library, it exports no garonne_transport_module, or compiler, crates or their sources differ from this build's. Or it is what the module says.",
        "Build the module with the sources and the compiler of this Garonne (docs/contributing/add-a-transport.md, \"As a module\"). The file must be at the same place on every host.";
    G0240: "a rank runs another MPI",
        "A program under `garonne run` uses a library of another MPI, which knows nothing of this job: each rank is a world of one there, all of them rank 0. The job was ended. Programs built for MPICH, Intel MPI or Open MPI load Garonne's library of that ABI instead, if the loader lets them; this one did not.",
        "The line names the rank, its process, the library with its path, and the file that needs it. `garonne doctor PROGRAM` says what a program loads, and why. A script that puts another MPI first in LD_LIBRARY_PATH, or a program that loads a library by its path while it runs, is not seen before it starts.",
        "Preload Garonne's library: `garonne run --abi mpich` or `--abi openmpi`. Programs that load a library by its path need another path: PREFIX/lib/foreign has Garonne's. MPIs of other ABIs than these two need another build, with Garonne's mpicc. If worlds of one are what you want, say `-x GARONNE_SINGLETONS=1`.";
    G0241: "a program cannot load Garonne's MPI library",
        "A program of a job of several ranks was built for another MPI, and nothing makes the loader take Garonne's library instead: each rank would be a world of one. Nothing was started.",
        "The line names the program and the reason: another MPI is linked into it statically; or it is setuid, setgid or has capabilities, so the loader ignores LD_LIBRARY_PATH and LD_PRELOAD; or the path of Garonne's libraries contains a character that these variables cannot hold.",
        "Link the program dynamically. Run a copy of a setuid program (`cp`), which has no rights of its own. Install Garonne at a path without blanks and colons. If worlds of one are what you want, say `-x GARONNE_SINGLETONS=1`, or `--abi off`.";
    G0244: "a process was not invited to a job",
        "A process wanted to be a rank of a job, knew the job's name and not what admits to it, and was not let in. The job goes on.",
        "The line names the variables. Each agent hands what admits to the ranks of its own host alone, in GARONNE_JOB, and draws it anew for every job.",
        "Start ranks with `garonne run` or a launcher that Garonne knows. If the variables were copied by hand or by a script, all of them must be those of one rank of one job.";
    G0245: "a host stood still for too long",
        "The agent of a host did not run for longer than the agents of the other hosts wait (20 s): it was stopped, its machine or container was suspended or frozen, or it got no processor time. The others took it for gone and ended their ranks; the job was ended.",
        "The line names the host that stood still, for how long, and a host whose agent has ended its part. The time is by the clock of the host that stood still.",
        "Nothing is wrong with the network or the other hosts. Look for what stopped the host that is named: SIGSTOP, a frozen container, a suspended laptop, a live migration, or far too many processes.";
    G0301: "no shared memory",
        "The memory file that ranks of one node talk through could not be made, or is not sealed as it must be.",
        "The line names the system's error.",
        "Check the memory limit of the container or cgroup, and `ulimit -v`, which counts shared memory of some megabytes for each rank of the host; `garonne doctor` tries the mechanisms one by one.";
    G0302: "too many open files",
        "A process reached its limit of open file descriptors.",
        "The line names the limit. The agent needs three per rank, a rank three in all.",
        "Raise it with `ulimit -n`, or start fewer ranks.";
    G0303: "too many processes",
        "The system refused to start another process.",
        "The line names what was to be started, the system's error, and the number of processes and threads that the user may have (`ulimit -u`), where that is limited.",
        "Raise the limit with `ulimit -u`, or the pids limit of the container, or start fewer ranks.";
    G0304: "out of memory",
        "Garonne asked for memory and got none: there is too little, or a limit on the addresses of a process is too low (`ulimit -v`). The process that asked ends, and its job with it.",
        "The line names how many bytes were asked for, and the limit on addresses with what the process uses of it, if there is one.",
        "Give the job more memory, raise `ulimit -v`, or start fewer ranks. A rank needs addresses for the inboxes of those it talks to on its host, some megabytes each, whether or not it uses that memory: such a limit does not limit memory well; a control group does.";
    G0305: "the output cannot be written",
        "The standard output of `garonne run` does not take any more, for another reason than that its reader has left. The job was ended.",
        "The line names the system's error.",
        "Free space on the disk that the output goes to, or send it elsewhere.";
    G0306: "too many hosts",
        "A job has at most 131,072 hosts.",
        "The line names the number of hosts and the limit.",
        "Use fewer hosts with more ranks each.";
    G0307: "ranks wait for each other",
        "A deadlock: each of some ranks waits in MPI for what only another of them could do, so none of them can ever go on. `garonne who` ends with exit code 10 then. `garonne run` prints it by itself after 10 s or more; GARONNE_DEADLOCK=abort has it end the job as well, off has it say nothing. A rank that polls (MPI_Test, MPI_Iprobe) may do other things between two looks and makes no deadlock: what would hold if it did nothing else is told beside the verdict.",
        "The lines name the ranks of the cycle, the call that each waits in, with its partner and tag, and the places in the program.",
        "Change the order of calls so that one of the ranks sends while its partner receives, or use nonblocking calls or MPI_Sendrecv. Sends that fit into buffers hide such a cycle until messages get longer.";
    G0308: "a rank waits for one that does nothing any more",
        "A rank waits in MPI for another that has called MPI_Finalize, has ended, or never came. `garonne who` ends with exit code 12 then. Where the other left with exit status 0, and the ranks have stood still for 10 s, the job is ended (GARONNE_DEADLOCK=off: it is not).",
        "The lines name the rank that waits, its call, and the rank that it waits for.",
        "Look for a way by which one rank leaves early: a return before the last collective call, `sys.exit(0)` or `exit(0)` in one branch, an exception that is caught around the whole program. To end a job from one rank call MPI_Abort.";
    G0309: "ranks wait for one that is stopped",
        "The rank that most others wait for was stopped by a signal (SIGSTOP, SIGTSTP), or is held by a debugger. `garonne who` ends with exit code 13 then.",
        "The line names the rank and its process.",
        "Have it go on: `kill -CONT` with its process id, `fg`, or `continue` in the debugger.";
    G0310: "ranks are in different collectives",
        "Ranks of one communicator have called different collectives as the same call in order, and wait for each other. `garonne who` ends with exit code 11 then. Where the library sees that itself the calls fail with G0112.",
        "The line names the communicator, two ranks, and what each called.",
        "All members of a communicator have to call the same collectives in the same order.";
    G0311: "a part of the job cannot be seen",
        "A host of the job does not say what its ranks do, and nothing is certain without it. `garonne who` ends with exit code 14 then.",
        "The line names the host, its ranks, and why it says nothing.",
        "Look whether that host or its agent (`garonne agent`) was stopped, or its network is down; ask again.";
    G0312: "ranks wrote like tracebacks",
        "Ranks of Python wrote tracebacks before a job ended. Equal ones are printed once. Exceptions that only say that another rank has ended (MPI_ERR_PROC_ABORTED) are told in a line. The traceback of the rank that failed first comes last, before the error.",
        "The line names the ranks. The exception of ranks that lost a peer comes with the program's line that it was raised at.",
        "Look at the error that follows and the traceback before it. To have every rank's words as they were written give each a file: `--output-filename`.";
    G0315: "the last events of the ranks",
        "Each rank records its last events all the time, in memory that outlives it: sends, receives, and what became of them, without times. Where a job ends badly (a rank is killed, ends without MPI_Finalize or calls MPI_Abort, the time is over, a deadlock ends it) `garonne run` writes the last hundred of each rank on its host to `garonne-NAME.trace`, for the 64 ranks nearest to the failed one. A file that is no trace is not overwritten. What several threads do in shards of their own is not in it.",
        "The line names the file, which lies in the working directory, or in $TMPDIR where that cannot be written.",
        "`garonne trace FILE` prints it, and https://ui.perfetto.dev opens it. `--record off` or GARONNE_RECORD=off: nothing is recorded and no file is written.";
    G0320: "metrics cannot be served there",
        "`garonne run --metrics` was given an address at which this host cannot listen. Nothing was started.",
        "The line names the address and what the system says: another process has the port, or the address is not this host's.",
        "Name another port (0: any that is free, which is printed), or an address of this host.";
    G0401: "invalid argument of a call of the Rust interface",
        "A call of the crate `garonne` got a rank that is not there or its own, a tag above 2^31 - 1, or a key or range that no region has. Or it came in an order that its documentation does not allow.",
        "The line names the call and the argument.",
        "Correct the argument at that place.";
    G0402: "a message is longer than its buffer",
        "A receive of the crate `garonne` got a message that does not fit its buffer. No byte beyond the buffer was written.",
        "The line names both lengths and the sender.",
        "Make the buffer as long as the longest message, or send the length first.";
    G0403: "the other process is gone",
        "A process that a call of the crate `garonne` was for has ended, has left, or cannot be reached any more.",
        "The line names the call, the rank and what is known of its end.",
        "Let processes leave (`Endpoint::leave`) when nobody wants anything of them any more. If the other process crashed, look at what it printed.";
    G0404: "no connection came to be",
        "Two processes that connect by address did not come together: nobody listened or accepted in time, or their keys differ.",
        "The line names the call and the address.",
        "Start the side that listens first, let it call `accept`, and give both sides one key.";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `./x install` puts `docs` into share/doc/garonne, so that they are there for who has nothing
    /// but an install.
    #[test]
    fn documents_that_codes_name_are_there() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
        let mut named = 0;
        for code in CODES {
            for text in [code.what, code.whence, code.todo] {
                for (at, _) in text.match_indices("docs/") {
                    let end = text[at..].find(".md").expect("documents end in .md") + ".md".len();
                    let path = &text[at..at + end];
                    assert!(
                        std::path::Path::new(root).join(path).is_file(),
                        "{}: {path}",
                        code.id
                    );
                    named += 1;
                }
            }
        }
        assert!(named > 0, "G0106 names one");
    }

    #[test]
    fn codes_are_in_order_and_every_part_is_told() {
        assert!(CODES.windows(2).all(|pair| pair[0].id < pair[1].id));
        for code in CODES {
            assert!(
                code.id.len() == 5
                    && [code.title, code.what, code.whence, code.todo]
                        .iter()
                        .all(|text| text.len() > 8),
                "{}",
                code.id
            );
        }
    }

    #[test]
    fn hosts_that_cannot_meet_are_told_of_a_third_one() {
        let code = find("G0229").unwrap();
        assert!(
            code.what.contains("third host") && code.todo.contains("passes their connections on")
        );
        assert!(!code.todo.contains("not there yet"));
    }

    #[test]
    fn a_code_is_found_in_any_spelling() {
        assert_eq!(find("g0107"), find("0107"));
        assert_eq!(find("G0107").unwrap().title, "message truncated");
        assert_eq!(find("G9999"), None);
    }
}
