// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kansoku::diagnose::words {

// Every sentence of a verdict: its headline, its evidence, its notes. Format strings of fmt,
// checked where they are used. A sentence that begins with "next:" is advice.

// The verdict.
inline constexpr char kNothingFound[] = "nothing found";
inline constexpr char kNotEnoughData[] = "not enough data";
inline constexpr char kMoreFindings[] = ", and {} more finding{}";
inline constexpr char kStepsLine[] = "{} steps on {}, median {:.1f} ms, p95 {:.1f} ms\n";
inline constexpr char kOneProcess[] = "one process";
inline constexpr char kSlowDownLine[] =
    "slow-down {:.3f}: mean step over the step of the same job if nobody were slower\n";
inline constexpr char kMissingLine[] = "missing: {}\n";
inline constexpr char kHeldUpLine[] = "held up: rank {}\n";
inline constexpr char kNoteLine[] = "note: {}\n";
inline constexpr char kJobsLine[] = "{} jobs in the recording\n";

// A finding's first lines.
inline constexpr char kNoSingleRank[] = "no single rank";
inline constexpr char kTheProcess[] = "the process";
inline constexpr char kAllRanks[] = "all ranks";
inline constexpr char kStandsStill[] = "{}: {}{} for {:.1f} s, {}\n";
inline constexpr char kStandsStillUnknown[] = "{}: {}{}, these files do not say since when, {}\n";
inline constexpr char kCostOfTime[] = "{}: {}, {:.0f} % of the time, {}\n";
inline constexpr char kCostPerStep[] = "{}: {}, {:.1f} ms per step ({:.0f} %), {}\n";
inline constexpr char kConfidence[] = "confidence {:.2f}";
inline constexpr char kOfDevice[] = "{}: {} ({})\n";
inline constexpr char kOfDeviceTime[] = "{}: {} ({}), {:.0f} % of the time\n";
inline constexpr char kOfDeviceStep[] = "{}: {} ({}), {:.1f} ms per step ({:.0f} %)\n";
inline constexpr char kInFunction[] = "  in {}\n";
inline constexpr char kNoFunctionKnown[] = "no function known";
inline constexpr char kOnlyPhaseOfFinding[] = "phase {}, no function known";
inline constexpr char kExplains[] = "  explains {:.0f} % of the slow-down\n";

// Units of time.
inline constexpr char kAStep[] = "a step of {:.1f} ms";
inline constexpr char kAWindow[] = "a window of {:.0f} ms";
inline constexpr char kPerStep[] = "per step";
inline constexpr char kInEachWindow[] = "in each {:.0f} ms";

// One thing seen by host and device.
inline constexpr char kOnlyDevices[] =
    "this process is no rank and was not seen to train: only its work on devices was judged, see "
    "`kansoku cuda report`";
inline constexpr char kOnlyDevicesOfRanks[] =
    "the hosts of these ranks could not be compared: only their work on devices was judged, see "
    "`kansoku cuda report`";
inline constexpr char kDevicesLeftOut[] =
    "findings on devices of more processes than Kansoku tells apart, left out: {}";
inline constexpr char kSeenOnHost[] = "the host shows it as {}{}{}";
inline constexpr char kCostOnHost[] = ", {:.1f} ms per step";
inline constexpr char kSeenOnDevice[] = "the devices show it as {} ({}), {:.0f} %: {}";

// A slow rank.
inline constexpr char kArrivesLast[] = "rank {} arrives last in {} of {} collectives";
inline constexpr char kMeanWait[] = "mean wait: rank {} {:.1f} ms, others {:.1f} ms";
inline constexpr char kPhaseAgainst[] = "phase {}: {:.1f} ms vs {:.1f} ms {}";
inline constexpr char kOnCpu[] = "on-CPU {:.0f} % of the excess{}";
inline constexpr char kOnCpuStopped[] = ": a signal stopped the process";
inline constexpr char kOnCpuSleeps[] = ": the thread sleeps";
inline constexpr char kOnCpuComputes[] = ": the thread computes";
inline constexpr char kStackSamples[] = "stack samples put {:.1f} ms {} more into {}";
inline constexpr char kMostlyBelow[] = ", most of it in {}, which it calls";
inline constexpr char kNotLocated[] = "{}: {}";
inline constexpr char kNoStackSamples[] = "no stack samples";
inline constexpr char kSamplesDisagree[] = "stack samples do not agree on a function";
inline constexpr char kOnlyPhaseKnown[] = "Kansoku knows only the phase";
inline constexpr char kFunctionUnknown[] = "Kansoku knows no function";
inline constexpr char kAsleepThere[] = "asleep in {:.0f} % of the samples there";
inline constexpr char kWaitsForWorkers[] =
    "it waits for its data-loader workers; worker pid {} spends the time";
inline constexpr char kMeanwhileIn[] = "the main thread is in {}";
inline constexpr char kIntermittent[] =
    "intermittent: {} of {} steps carry the excess, {}{:.0f} steps; each takes {:.0f} ms longer "
    "than {}, {:.1f} times the median step";
inline constexpr char kAboutEvery[] = "about every ";
inline constexpr char kMoreWork[] =
    "forward takes {:.2f} times as long as {}, backward {:.2f}{}, as with larger batches or longer "
    "sequences";
inline constexpr char kMoreWorkOptimizer[] = ", the optimizer {:.2f}";
inline constexpr char kDataComeFrom[] = "its data come from {}";
inline constexpr char kDataSourceUnknown[] = "no sample of input shows the source of its data";
inline constexpr char kVictimInCommunication[] =
    "rank {} waits {:.1f} ms per step more than its peers in {}, for another rank: it is no "
    "culprit";
inline constexpr char kVictimOfCollectives[] =
    "rank {} works {:.1f} ms per step more than its peers, yet waits {:.1f} ms per collective: "
    "it is no culprit";
inline constexpr char kTwoRanks[] =
    "two ranks cannot outvote each other: a difference between them is an asymmetry";

// A rank that waits.
inline constexpr char kForInterpreterLock[] = "for the interpreter lock";
inline constexpr char kForLock[] = "for a lock or a condition (futex)";
inline constexpr char kInCall[] = "in {}";
inline constexpr char kInCallOn[] = "in {} on {}";
inline constexpr char kWaits[] = "it waits {} in {:.0f} % of the {} samples of its sleep";
inline constexpr char kHolder[] = "thread {} of this process holds it in {:.0f} % of them, in {}";
inline constexpr char kNoHolder[] = "no thread holds the interpreter lock in most of these samples";
inline constexpr char kInterrupt[] = "an interrupt (a timer, the network or a device)";
inline constexpr char kOwnThread[] = "its own thread {} ({}){}";
inline constexpr char kMostlyIn[] = ", mostly in ";
inline constexpr char kWakers[] = "its wakers, by time asleep: {}";
inline constexpr char kUnknownWaker[] = "the recording has no waker for {:.0f} % of that time";
inline constexpr char kCommonSleep[] =
    "every rank sleeps in {} ({}:{}) for {:.0f} % of its steps: no rank is to blame; compare "
    "with a healthy run (`--baseline`) to see whether that is too long";

// Waiting for a processor.
inline constexpr char kAProcess[] = "a process";
inline constexpr char kOtherProcesses[] = "other processes";
inline constexpr char kJobItself[] = "the job itself";
inline constexpr char kUnnamedThreads[] = "threads that the recording does not name";
inline constexpr char kTakers[] = "others that use the processors: {}";
inline constexpr char kAlsoWaits[] = "it also waits {:.1f} ms {} longer for a processor";
inline constexpr char kWaitsMore[] =
    "the main thread is ready to run but without a processor for {:.1f} ms {} more than on peers";
inline constexpr char kWaitsInAll[] = "ready to run but without a processor in {}: {}{}";
inline constexpr char kMoreRanks[] = " and {} more ranks";
inline constexpr char kCompete[] = "{} threads of the job compete for {}";
inline constexpr char kTheirProcessors[] = "the processors of these ranks";
inline constexpr char kProcessorsEach[] = "{} processor{} a rank";
inline constexpr char kProcessorsList[] = "processor{} {}{}";
inline constexpr char kProcessorsOfHost[] = " of {}";
inline constexpr char kAdviceMoreProcessors[] =
    "next: let the ranks use more processors (taskset -p, --cpu-bind, cpuset.cpus)";
inline constexpr char kAdviceFewerThreads[] =
    "next: run fewer ranks or threads on this host (OMP_NUM_THREADS, torch.set_num_threads, "
    "workers), or use more processors";
inline constexpr char kAdviceMoveOthers[] =
    "next: end or move the other processes, or reserve processors for the job (taskset, "
    "cpuset.cpus)";
inline constexpr char kWaitingNote[] = "waiting for a processor takes {:.1f} ms of {}; {}";

// A processor quota.
inline constexpr char kQuota[] = "the control group {1} has a quota of {0:.2f} processors";
inline constexpr char kAdviceQuota[] =
    "next: raise cpu.max (cpu.cfs_quota_us) of the control group, or the container's CPU limit";
inline constexpr char kThrottled[] = "a processor quota held {} back for {:.0f} % of the time{}";
inline constexpr char kTheseRanks[] = "these ranks, rank {} most,";
inline constexpr char kThrottledOthers[] = ", the others for at most {:.0f} %";

inline constexpr char kStolen[] =
    "the hypervisor took the {1} processors of rank {2}'s host away for {0:.0f} % of the time";
inline constexpr char kAdviceStolen[] =
    "next: the machine shares its processors with others: ask for dedicated ones, or move the job";

// Page faults.
inline constexpr char kFaultsOfRank[] =
    "{}: {:.0f} page faults a step, {:.1f} ms of system time, {:.1f} ms of user time";
inline constexpr char kFaultPlaces[] = "of these page faults {:.0f} % are {}";
inline constexpr char kAdviceFaultsInFiles[] =
    "next: pages of mapped files come and go: read the file once into memory of your own, or give "
    "the job more memory, so that they stay";
inline constexpr char kAdviceFaultsInMapped[] =
    "next: memory is touched for the first time in each step, or was given back with madvise: "
    "allocate it once and use it again; allocators of their own have a setting for how long they "
    "keep memory (jemalloc: dirty_decay_ms:-1), and huge pages fault less often";
inline constexpr char kFaultsIn[] =
    "page faults and the stack samples around them put {:.1f} ms {} into {}";
inline constexpr char kFaultPrice[] =
    "a page fault costs {:.1f} us in the kernel and {:.1f} us of user time around it";
inline constexpr char kFaultPriceInKernel[] =
    "a page fault costs {:.1f} us in the kernel; its user time is not known, as no rank faults "
    "less";
inline constexpr char kStepWithoutFaults[] =
    "without them a step would take {} {:.1f} ms, not {:.1f} ms";
inline constexpr char kAdviceFaults[] =
    "next: if the program frees large memory and takes it again in each step, start it with "
    "MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=1000000000 (glibc; one alone can "
    "make "
    "it worse): memory that was used once then stays with the process; or try another allocator, "
    "or "
    "huge pages";
inline constexpr char kFaultsMayExplain[] =
    "less what page faults cost, rank {} works {:.1f} ms per step longer than its peers; that cost "
    "is known to {:.1f} ms only, so the rank is not named";

inline constexpr char kSlowStretch[] =
    "rank {} works {:.1f} ms per step longer than its peers, in too few parts of the recording to "
    "name it: record for longer";

// The kernel's work.
inline constexpr char kKernelOfRank[] = "rank {}: {:.1f} ms a step {}{}; its peers: {:.1f} ms";
inline constexpr char kInCalls[] = "in system calls";
inline constexpr char kInReclaim[] = "in the search for memory that can be freed";
inline constexpr char kInInterrupts[] = "in interrupts that run on top of it";
inline constexpr char kAdviceCalls[] =
    "next: strace -c -p PID counts them; fewer and larger calls cost less";
inline constexpr char kMemoryLimit[] =
    "the memory limit nearest to rank {} is that of the control group {}, {:.0f} MB";
inline constexpr char kMemoryOfHost[] =
    "no control group limits the memory of rank {} more than its host does";
inline constexpr char kAdviceReclaim[] = "next: raise that limit, or use less memory";
inline constexpr char kAdviceInterrupts[] =
    "next: /proc/interrupts and /proc/softirqs tell which; move them to another processor "
    "(smp_affinity), or the rank (taskset)";

// All ranks.
inline constexpr char kFewStepsCarry[] =
    "{} of {} steps carry half of the loss; rank {} is slowest in {} of these {}: too few to "
    "blame it, record for longer";
inline constexpr char kOtherDuties[] =
    "a rank works less than half as much as another: they have duties of their own, and whether "
    "work moves between them is not judged";
inline constexpr char kOptimizerVaries[] =
    "{:.1f} ms of a step are lost to the slowest rank, another one each time; the optimizer, which "
    "does the same on all ranks, varies {:.1f} to {:.1f} times as much: nothing says that work "
    "moves";
inline constexpr char kSlowestMoves[] =
    "each step takes as long as its slowest rank, and that is another rank each time: rank {} "
    "most often, in {:.0f} % of the steps; no rank is to blame";
inline constexpr char kTimeThatMoves[] =
    "{:.0f} % of the time that the slowest rank of a step takes longer, it is on a processor";
inline constexpr char kAdviceEqualWork[] =
    "next: give all ranks equal work in each step: batches of equal size, sequences of similar "
    "length; collect garbage on all ranks at once";
inline constexpr char kCommonInput[] =
    "{} spends at least {:.0f} % of its steps on input, waits for a processor left out";
inline constexpr char kEveryRank[] = "every rank";
inline constexpr char kRegression[] =
    "median step {:.2f} ms [{:.2f}, {:.2f}], baseline {:.2f} ms [{:.2f}, {:.2f}]: x {:.3f}";
inline constexpr char kPhaseGrew[] = "phase {}: {:.2f} ms a step more";
inline constexpr char kFunctionGrew[] = "{}: {:.2f} ms a step more";
inline constexpr char kSlowed[] =
    "from step {} of {} on, {:.1f} s into the recording, a step takes {:.1f} ms; before, {:.1f} "
    "ms";

// A job without steps.
inline constexpr char kTimeShares[] =
    "processors for {} of the time, its peers for {}; its main thread sleeps for {}, theirs for "
    "{}";
inline constexpr char kComparedByTime[] =
    "no steps: Kansoku compares the processor time of ranks, in {} windows of {:.0f} ms";
inline constexpr char kThreadsHave[] = "its threads have {}{}";
inline constexpr char kTimesTheWork[] = ": {:.1f} times the work";
inline constexpr char kTimeNotBlamed[] =
    "no steps, so Kansoku compared the processor time of ranks: rank {} has {}; it {} other duties "
    "and is no culprit";
inline constexpr char kMayHave[] = "may have";
inline constexpr char kRunsAnotherCommand[] = "runs another command than its peers, so it has";
inline constexpr char kTimeAlike[] =
    "no steps, so Kansoku compared the processor time of ranks: they have processors for {} of "
    "the time and sleep for {}; no rank stands out";

// A job that stands still.
inline constexpr char kInsideFor[] =
    "ranks {} have been in {} for {:.1f} s, until the end of the recording";
inline constexpr char kGradientReduction[] = "a gradient reduction";
inline constexpr char kMessage[] = "a wait for a message";
inline constexpr char kWaitsForMessage[] = "rank {} waits for a message of rank {}, for {:.1f} s";
inline constexpr char kNeverJoined[] = "rank {} never joined it";
inline constexpr char kAllArrived[] =
    "every rank has arrived: the cause is the network or a deadlock inside the library, no "
    "single rank";
inline constexpr char kMembersUnseen[] =
    "members of its group that were seen in none of its calls: {}; whether they have arrived is "
    "not "
    "known";
inline constexpr char kSameStack[] = "same stack in {} of {} samples since then";
inline constexpr char kStandsIn[] = "it stands in {} ({}:{}), called from there";
inline constexpr char kHoldsLockSince[] =
    "thread {} of rank {} has held the interpreter lock since then: no other Python code of this "
    "process can run";
inline constexpr char kArrivedButProcess[] = "rank {} has arrived as well, but its process {}";
inline constexpr char kNotSeenSince[] = "was not seen since: it exited or was killed";
inline constexpr char kIsStopped[] = "is stopped";
inline constexpr char kItNotSeenSince[] = "it was not seen since: it exited or was killed";
inline constexpr char kItsProcessStopped[] = "its process is stopped";
inline constexpr char kNoPythonStack[] = "no Python stack";
inline constexpr char kSinceUnknown[] =
    "it stood still when the recording began, {:.1f} s before its end: since when is not known";
inline constexpr char kAsleepInCall[] = "asleep in {}, called from {} ({}:{}): rank {}";
inline constexpr char kAsleepInPlace[] = "asleep in {} ({}:{}): rank {}";
inline constexpr char kAsleepOutside[] = "asleep outside of communication: rank {}";
inline constexpr char kSleepsAllTime[] = "it waits {} in {} of {} looks";
inline constexpr char kNotAmongProcesses[] =
    "all ranks that were looked at are asleep in communication; rank {} is not among them: it "
    "never started, has ended, runs on another host, or was not asked for";
inline constexpr char kNoStacksOf[] = "no Python stacks of rank {}: who waits for whom is not told";
inline constexpr char kOneIsInAnother[] =
    "the others are in another call: of one group, these two never meet";
inline constexpr char kOneWaitsForAMessage[] =
    "it waits for a message, and all others wait in one collective";
inline constexpr char kTwoThreads[] =
    "two threads of rank {} wait in communication at once: if both use one group, its ranks call "
    "in "
    "different orders";
inline constexpr char kStandsForWorker[] =
    "it waits for its worker, process {}, which stands as well: the place is there";
inline constexpr char kLastCall[] = "rank {}: its last call, {} {} of {}, was {:.1f} s before";
inline constexpr char kOthersWaitSince[] = "the others have waited for {:.1f} s";
inline constexpr char kNoCallFor[] =
    "rank {} has made no call for {:.1f} s; its longest pause in {} calls before was {:.2f} s";
inline constexpr char kWritesMeanwhile[] = ", and it reads or writes files";
inline constexpr char kWaitForOneAtWork[] =
    "rank {} {} for rank {}, which is {} in {} ({}:{}) for all {:.1f} s that were looked at: "
    "whether it will come is not known";
inline constexpr char kAtWork[] = "at work";
inline constexpr char kAsleepAndMayWake[] = "asleep {}";
inline constexpr char kAllInCommunication[] =
    "all ranks are asleep in communication for all {:.1f} s that were looked at ({}): their stacks "
    "do not tell whom they wait for";
inline constexpr char kKernelSent[] = ", which the kernel sent";
inline constexpr char kSenderSent[] = ", which {} sent";
inline constexpr char kOfBytes[] = "{} of {} bytes";
inline constexpr char kEndedBySignal[] = "the process of rank {} was ended by signal {}{}";
inline constexpr char kEndedFirst[] = "the process of rank {} ended first, with status {}";
inline constexpr char kNeverCompleted[] = "not all ranks completed {}";

// Dumps of a job that stands still.
inline constexpr char kDifferentCalls[] = "ranks made different calls as operation {} of {}";
inline constexpr char kWaitedFor[] = "waited for in {} by rank {}";
inline constexpr char kNeverHandedOver[] =
    "rank {} never issued an operation that its peers wait in, and waits in none";
inline constexpr char kOutsideOfCommunication[] =
    ": its program stands still outside of communication";
inline constexpr char kNoDumpPeersWait[] =
    "rank {} left no dump, and its peers wait for it: its process died, or its dump is not among "
    "these files";
inline constexpr char kAdviceStacks[] =
    "next: look at the native and Python stacks of this rank (interpreter lock, input, a lock in "
    "code)";
inline constexpr char kAdviceExit[] =
    "next: look for the exit of this rank's process in its log and the kernel's";
inline constexpr char kDeviceStuck[] =
    "rank {} has not completed {} {} of {}, which peers have completed: its device stands still "
    "while its program continues to issue work";
inline constexpr char kAdviceDevice[] =
    "next: look for device errors (XID, ECC, page faults) on this rank's host";
inline constexpr char kNoDumpOf[] = "no dump of rank {}";
inline constexpr char kWaitsForRank[] = "rank {} waits in {} {} of {} for rank {}";
inline constexpr char kAdviceOrder[] =
    "next: make these ranks call the operations of their groups in one order";
inline constexpr char kWaitsInNothing[] = "waits in no operation";
inline constexpr char kWaitsLeadThere[] =
    "{} of {} waiting ranks wait for them, or for a rank that does";
inline constexpr char kTimeoutOfFirst[] =
    "the first operation that is pending has a timeout of {:.0f} s; when the dumps were written "
    "they "
    "do not say";
inline constexpr char kOlderDumps[] =
    "the dumps of rank {} are older than those of their peers, who completed later operations that "
    "all take part in: what these ranks do now is unknown; dump all at one moment";
inline constexpr char kAboutToComplete[] =
    "rank {}: peers have completed the operation that is pending here, and none of them waits: "
    "dumps "
    "of different moments look like that";
inline constexpr char kRanksWait[] = "{} of {} ranks wait in an operation";
inline constexpr char kNoneCompleted[] =
    "every rank has issued these operations, and none has completed them: these dumps do not say "
    "why";
inline constexpr char kNotKnownWhoIsBehind[] =
    "these dumps do not say who of their groups has not issued these operations";
inline constexpr char kBadEntries[] =
    "{} entries were left out: they lack the group, number, name or state of an operation";
inline constexpr char kNotAligned[] =
    "group {}: version 1 of the dumps numbers transfers and collectives together, so that a number "
    "means another operation on each rank: nobody is said to be behind there";

// A slow connection.
inline constexpr char kRankLinksSlow[] = "all busy connections of this rank are slow";
inline constexpr char kPairLinkSlow[] = "the connection between these two ranks is slow";
inline constexpr char kRoundTrip[] =
    "round-trip time of its busy connections at least {:.2f} ms, of all others at most {:.2f} ms "
    "(medians)";
inline constexpr char kDelivery[] =
    "its busy connections deliver at most {:.0f} MB/s, all others at least {:.0f} MB/s (medians)";
inline constexpr char kRetransmits[] =
    "its busy connections retransmitted at least {:.0f} segments each, all others at most {:.0f}";
inline constexpr char kByteOccupies[] =
    "a byte occupies its connections {:.2f} times as long as any other";
inline constexpr char kTransfersTake[] =
    "transfers take {:.1f} ms of a step of {:.1f} ms after the last rank has arrived";
inline constexpr char kAdviceNetwork[] =
    "next: compare counters of this host's network port with its peers'";

// Profiles of devices.
inline constexpr char kLoaderTakes[] = "{:.1f} % of the window passes in the data loader while {}";
inline constexpr char kDeviceRunsNothing[] = "no kernel, copy or collective runs on the device";
inline constexpr char kModelWaits[] = "the model waits for its batch";
inline constexpr char kDeviceBusy[] = "the device is busy for {:.1f} % of the window";
inline constexpr char kAdviceWorkers[] =
    "next: the loader runs in the training process: give it workers (num_workers)";
inline constexpr char kAdviceFasterInput[] =
    "next: use more or faster loader workers, prefetching, or cheaper decoding";
inline constexpr char kDiffersFrom[] =
    "{:.1f} % of the window on rank {}, {:.1f} % on its peers; it differs from {:.0f} % of them";
inline constexpr char kSpentIn[] = "its time is in {}, called from there";
inline constexpr char kResourceUse[] = "mean use of its resource {:.3g}, peers {:.3g}";
inline constexpr char kLastToArrive[] =
    "last to arrive in {:.0f} % of {} collectives; it waits {:.2f} ms a step there, its peers "
    "{:.2f} ms";
inline constexpr char kEarlyRanks[] =
    "rank {} waits {:.2f} ms a step in collectives for all others: it comes early";
inline constexpr char kClocksAligned[] =
    "clocks aligned by the ends of collectives, residual {:.3f} ms";
inline constexpr char kDeviceIdle[] =
    "rank {}: the device is idle for {:.0f} % of the window, {:.1f} ms {}";
inline constexpr char kWindowOfSteps[] = "from the first step to the end of the last";
inline constexpr char kWindowOfEvents[] = "from the first event to the end of the last";
inline constexpr char kLongestIdle[] = "; its longest time without work takes {:.1f} ms{}: {}";
inline constexpr char kBeforeFirst[] = ", in front of its first operation";
inline constexpr char kBehindLast[] = ", behind its last operation";
inline constexpr char kHostIsIn[] = "the host is in {}";
inline constexpr char kHostNotSeen[] = "nothing of the host was seen there";
inline constexpr char kUnreadable[] =
    "rank {}: {:.0f} % of the events of its file cannot be read: nothing is said of it alone";
inline constexpr char kOneRankOfTraces[] =
    "only one rank: Kansoku cannot compare ranks; give the traces of all ranks together";
inline constexpr char kOneProcessOfTraces[] = "one process, which has no peers to compare it with";
inline constexpr char kCollectivesLeftOut[] =
    "{} collectives do not count: the ranks have different numbers of them";
inline constexpr char kFewInCommon[] = "{} collectives in common: too few to find the late rank";
inline constexpr char kTraceHasNoRank[] = "the trace names no rank: it counts as rank 0";
inline constexpr char kSeveralPrograms[] =
    "one trace holds the steps of {} processes (pid {}), and what runs on the device names none of "
    "them: give each process a file of its own";
inline constexpr char kTraceHasNothing[] =
    "no operator, kernel or collective in the trace: Kansoku reads categories such as cpu_op, "
    "kernel, user_annotation (gloo:)";

// Stages of a pipeline.
inline constexpr char kOfItsStage[] = "in the other pipelines";
inline constexpr char kRunsAlone[] =
    "only rank {} runs {}: {:.1f} ms per step of the {:.1f} ms that it works";
inline constexpr char kAboveOtherStages[] =
    "it is stage {} of {}, counted from 0, and works {:.1f} ms per step longer than the other "
    "stages";
inline constexpr char kPipeline[] =
    "a pipeline of {} stages{}: with equal stages its schedule leaves ranks idle for {:.0f} % of "
    "its passes (bubble), unequal ones for {:.0f} % more";
inline constexpr char kMicroBatches[] = " with {} micro-batches";
inline constexpr char kUnevenStages[] =
    "stage {}, counted from 0, has {:.1f} times the work of the others ({:.1f} ms per step, {:.1f} "
    "on average): an equal cut would save up to {:.1f} ms of {:.1f} ms of passes";

// Timelines of operations.
inline constexpr char kAloneAgainstIdeal[] = "alone, against the ideal step: ";
inline constexpr char kMeanAndIdealStep[] =
    "mean step {:.3f} s, {:.3f} s if every operation took the mean of its kind";
inline constexpr char kFixedStep[] =
    "{:.3f} s if {} were like the others: explains {:.0f} % of the difference";
inline constexpr char kStageTakesLonger[] =
    "stage {} alone makes the step {:.3f} times as long: its operations take longer than those of "
    "the others";
inline constexpr char kAdviceStages[] =
    "next: move layers from this stage to others, or count the loss layer as part of it when "
    "splitting";
inline constexpr char kLeadsInSamples[] = "leads in {:.1f} % of bootstrap samples of {} steps";
inline constexpr char kAdviceHost[] =
    "next: compare clocks, temperature and other load of this worker's host with its peers'";
inline constexpr char kDurationsCorrelate[] =
    "forward and backward durations of a micro-batch correlate by {:.3f}: long ones are long in "
    "both, on any rank";
inline constexpr char kAdviceSequences[] =
    "next: balance sequence lengths over micro-batches and ranks";
inline constexpr char kWorkerLabel[] = "data-parallel rank {}, stage {}";
inline constexpr char kStagesUnequal[] = "stages of unequal work";
inline constexpr char kBatchesUnequal[] = "micro-batches of unequal work";
inline constexpr char kNoDurations[] = "no operation has a duration: there is nothing to compare";
inline constexpr char kOperationsLeftOut[] =
    "{} operations do not count: they have no step, or belong to further tensor-parallel ranks";

// Missing data, and notes on the recording.
inline constexpr char kLostData[] = "the recording lost data: see losses";
inline constexpr char kNoPeers[] =
    "one process has no peers: compare it with a healthy run (`--save-baseline`, `--baseline`) "
    "to see whether it is slow all the time";
inline constexpr char kNoJob[] =
    "no job in the trace: no process had a rank in its environment (RANK and WORLD_SIZE, OMPI_*, "
    "SLURM_*), and no process trained; `kansoku jobs` lists the jobs that run";
inline constexpr char kOneRank[] =
    "only one rank: Kansoku cannot compare ranks; record the whole job (`kansoku record --job "
    "NAME`)";
inline constexpr char kNoSteps[] =
    "no steps: Kansoku needs at least {} repeats of one sequence of events; record for longer, "
    "and check the probes with `record --explain`";
inline constexpr char kNoRank[] = "no rank in the trace";
inline constexpr char kNoSequenceNumbers[] =
    "collectives carry no sequence numbers: Kansoku aligned ranks by position from the end";
inline constexpr char kNotSeenWhole[] =
    "{} of {} collectives do not count: they were not seen whole on all ranks";
inline constexpr char kAmbiguous[] =
    "{} collectives do not count: they share group, operation and sequence number with others";
inline constexpr char kClaimedRanks[] =
    "{} further processes claim a rank that another has: Kansoku used the busiest";
inline constexpr char kImpossibleTimes[] = "{} slices do not count: their times are impossible";
inline constexpr char kRanksMissing[] =
    "the job has {} ranks, the trace has {}: Kansoku knows nothing of the others";
inline constexpr char kFurtherJobs[] = "{} further jobs were left out";
inline constexpr char kNoScheduler[] =
    "no scheduler events: waiting for a processor counts as work";
inline constexpr char kNoRepeats[] =
    "no steps found: no sequence of backward, optimizer, input or collective events repeats "
    "often enough";
inline constexpr char kAlignedByTime[] =
    "steps hold no collective that was seen on all ranks: Kansoku aligned them by time";
inline constexpr char kAlignedByCount[] =
    "steps hold no collective: Kansoku aligned them by their number since the last one of all "
    "ranks";
inline constexpr char kAlignedByMessages[] =
    "steps hold no collective: Kansoku aligned them by the messages between the ranks";
inline constexpr char kFewCommonSteps[] = "only {} steps are common to all ranks; Kansoku needs {}";
inline constexpr char kFewSteps[] = "only {} steps: confidence is limited";
inline constexpr char kTooFewToName[] = "only {} steps: no rank is called slow with fewer than {}";

}  // namespace kansoku::diagnose::words
