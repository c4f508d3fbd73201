package bypass

import (
	"context"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

const (
	// The agent writes values to a new cgroup when no other program has written to the cgroup for quietTime. After
	// maxQuietWait, the agent writes in any case.
	quietTime    = time.Millisecond
	maxQuietWait = 5 * time.Millisecond
	// setupPollInterval is the pause between two checks whether the OCI runtime has finished the setup of a cgroup.
	// With runc, about 20 ms pass between the end of the setup and the first instruction of the container.
	setupPollInterval = 4 * time.Millisecond
	// maxStartTime is how long, after the creation of a container's cgroup, the agent watches the files in it. A
	// container should reach its first instruction within this time.
	maxStartTime = 30 * time.Second
)

// watchStart watches a container from the creation of its cgroup until the runtime reports the container as running.
// During that time the agent replaces the values that the runtime writes to the new cgroup.
func (s *session) watchStart(p *pod, c *ctr) {
	c.startWatch = make(chan struct{})
	f := &startingCgroup{
		s: s, dir: c.dir, wake: make(chan struct{}, 1), done: c.startWatch, watchedDirs: map[string]bool{},
	}
	s.tasks.run(func() { f.watch(p, c) })
}

// watch makes the keeper write the decided values to the cgroup of a starting container (see reconcile). It does so
// when the OCI runtime has finished the setup of the cgroup, and again after each write by another program. watch ends
// when the runtime reports the container as running, or after maxStartTime. If procfs shows no process of the
// container, watch writes nothing, and the values are written when the runtime reports the container as running.
func (f *startingCgroup) watch(p *pod, c *ctr) {
	s := f.s
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer f.close()
	end := time.NewTimer(maxStartTime)
	defer end.Stop()
	// askDelay is how long to wait before the session asks the runtime whether the container runs. The delay is longer
	// if the runtime sends an event at the start. The session asks nevertheless, because an event may be lost.
	askDelay := 10 * time.Millisecond
	if s.sendsEvents.Load() {
		askDelay = 200 * time.Millisecond
	}
	ask := time.NewTimer(askDelay)
	defer ask.Stop()
	poll := time.NewTicker(setupPollInterval)
	defer poll.Stop()
	for dirty := true; ; {
		f.watchDirs()
		at, creator := setupUnknown, 0
		if dirty {
			at, creator = s.startWatcher.setupState(f.dir)
		}
		if at == setupFinished {
			f.awaitQuiet()
			s.reconcile(p, c)
			dirty = false
		}
		polls := poll.C
		if at == setupRunning && f.watchProcessEnd(ctx, creator) || !dirty && f.allWatched {
			polls = nil // a notice or the end of the process wakes this goroutine
		}
		select {
		case <-s.ctx.Done():
			return
		case <-f.done:
			return
		case <-end.C:
			return
		case <-f.wake:
			dirty = true
		case <-polls:
			dirty = dirty || !f.allWatched
		case <-ask.C:
			s.hint(p.id, c.id, askStatus)
			askDelay = min(2*askDelay, time.Second)
			ask.Reset(askDelay)
		}
	}
}

// watchProcessEnd makes the end of a process send a value on f.wake. It returns false if the agent cannot watch the
// process, or if the process has ended already.
func (f *startingCgroup) watchProcessEnd(ctx context.Context, pid int) bool {
	if f.s.a.o.Proc != defaultProc {
		return false // procfs may show the processes of another machine or PID namespace
	}
	if f.awaitedPID != pid {
		f.awaitedPID = pid
		f.awaitsEnd.Store(true)
		f.s.tasks.run(func() {
			_ = awaitExit(ctx, pid) // after an error, awaitsEnd is false, and watch polls instead
			f.awaitsEnd.Store(false)
			sleep.Wake(f.wake)
		})
	}
	return f.awaitsEnd.Load()
}

// startingCgroup is the cgroup of a container that starts, while the session watches it.
type startingCgroup struct {
	s           *session
	dir         string          // the cgroup's directory
	wake        chan struct{}   // receives a value after a write to the cgroup, and at the end of process awaitedPID
	done        <-chan struct{} // ctr.startWatch: closing the channel ends the watch
	watchedDirs map[string]bool // the directories that dirs returns; the value is true if the directory is watched
	allWatched  bool            // all directories that dirs returns are watched
	awaitedPID  int             // the last process whose end watchProcessEnd awaited
	awaitsEnd   atomic.Bool     // a goroutine waits for the end of process awaitedPID
}

// dirs returns the directories to watch for writes by the runtime. In version 1 each controller has its own
// directory, and the runtime creates them one after another.
func (f *startingCgroup) dirs() []string {
	if f.s.a.o.Tree.Version == cgroup.V2 {
		return []string{f.dir}
	}
	return []string{path.Join("cpuset", f.dir), path.Join("cpu", f.dir), path.Join("memory", f.dir)}
}

// watchDirs watches those directories of the cgroup that exist and are not watched yet.
func (f *startingCgroup) watchDirs() {
	f.allWatched = true
	for _, dir := range f.dirs() {
		f.watchedDirs[dir] = f.watchedDirs[dir] || f.s.startWatcher.watch(dir, f.wake)
		f.allWatched = f.allWatched && f.watchedDirs[dir]
	}
}

func (f *startingCgroup) close() {
	for dir := range f.watchedDirs {
		f.s.startWatcher.unwatch(dir)
	}
}

// awaitQuiet waits until no program has written to the cgroup for quietTime, at most for maxQuietWait.
func (f *startingCgroup) awaitQuiet() {
	most := time.NewTimer(maxQuietWait)
	defer most.Stop()
	still := time.NewTimer(quietTime)
	defer still.Stop()
	for {
		select {
		case <-f.wake:
			f.watchDirs()
			still.Reset(quietTime)
		case <-still.C:
			return
		case <-most.C:
			return
		case <-f.done:
			return
		case <-f.s.ctx.Done():
			return
		}
	}
}

// startWatcher watches the files of new cgroups while OCI runtimes set the cgroups up.
type startWatcher struct {
	tree    *cgroup.Tree
	proc    string // the directory where procfs is mounted
	watcher cgroup.Watcher

	wakeChans sync.Map // by directory: the channel to send on when a file in the directory is written
}

// watch watches a directory. Each write to one of its watchedFiles then sends a value on wake. watch returns false if
// the directory cannot be watched.
func (s *startWatcher) watch(dir string, wake chan struct{}) bool {
	s.wakeChans.Store(dir, wake)
	return s.watcher.Add(dir) == nil
}

func (s *startWatcher) unwatch(dir string) {
	s.wakeChans.Delete(dir)
	s.watcher.Remove(dir)
}

// wakeWatcher handles a write to a file. If the file is one of watchedFiles, wakeWatcher sends a value on the channel
// of the file's directory, so that the goroutine that watches the container's start continues.
func (s *startWatcher) wakeWatcher(file string) {
	wake, _ := s.wakeChans.Load(path.Dir(file))
	if to, waits := wake.(chan struct{}); waits && watchedFiles[path.Base(file)] {
		sleep.Wake(to)
	}
}

// watchedFiles are the names of the cgroup files that are watched during a container's start: cgroup.procs, and the
// files that have settings.
var watchedFiles = settingFiles()

// settingFiles returns the names for watchedFiles.
func settingFiles() map[string]bool {
	files := map[string]bool{procsFile: true}
	for _, row := range cgroup.Settings() {
		files[row.V1.Name], files[row.V2.Name] = true, true
	}
	return files
}

// handleNewCgroups handles new cgroups of containers.
func (s *session) handleNewCgroups(found map[string]string) {
	for id, dir := range found {
		switch podID, ask := s.index.noteCgroup(id, dir); {
		case podID != "":
			s.hint(podID, id, cgroupCreated)
		case ask:
			s.tasks.run(func() { s.resolve(id, dir) })
		}
	}
}

// handleRemovedCgroup handles the removal of a cgroup directory.
func (s *session) handleRemovedCgroup(dir string) {
	id, ok := s.index.byCgroupDir(dir)
	n := cgroup.ParseName(dir)
	switch {
	case ok:
		s.hintContainer(id, cgroupRemoved)
	case n.Kind == cgroup.ContainerDir && s.index.isPod(n.ID):
		s.tasks.run(func() { s.pollSandboxEnd(n.ID) })
	case n.Kind == cgroup.PodDir:
		s.tasks.run(s.relist)
	}
}

// pollSandboxEnd checks a pod repeatedly after the cgroup of its sandbox was removed. Runtimes report the sandbox's end
// a moment later. If these checks do not find the end, the next list shows it.
func (s *session) pollSandboxEnd(id string) {
	for n := 0; n < maxExitPolls && sleep.For(s.ctx, 10*time.Millisecond<<n) && s.index.isPod(id); n++ {
		s.hintPod(id)
	}
}

const (
	// maxResolving is how many cgroups the index stores while the session searches their containers.
	maxResolving = 1024
	// maxResolveTime is how long the runtime may take to list the container of a new cgroup.
	maxResolveTime = 15 * time.Second
)

// resolve asks the runtime which container or sandbox a cgroup belongs to. The runtime creates the cgroup before it
// lists the container, so resolve asks repeatedly. The id is the one in the cgroup's name.
func (s *session) resolve(id, dir string) {
	defer s.index.endResolving(id)
	for delay, waited := 5*time.Millisecond, time.Duration(0); waited < maxResolveTime; delay = min(2*delay, time.Second) {
		if known, err := s.findPod(id); known || criclient.ConnectionFailed(s.ctx, err) {
			return
		}
		if !sleep.For(s.ctx, delay) || !s.a.o.Tree.Has(dir) {
			return
		}
		waited += delay
	}
	s.a.o.Log.Info("a cgroup has a container's name, but the runtime lists no such container; the agent does not change the cgroup", logkey.File, dir)
}

// findPod finds the pod of a container id or sandbox id, and makes the pod's worker check the container or sandbox. It
// reports whether the runtime lists the id.
func (s *session) findPod(id string) (bool, error) {
	c, err := s.c.ListedContainer(s.ctx, id)
	if err != nil {
		return false, err
	}
	if c != nil {
		s.hint(c.PodSandboxId, id, askStatus|cgroupCreated)
		return true, nil
	}
	p, err := s.c.ListedPod(s.ctx, id)
	if p != nil {
		s.hintPod(id)
	}
	return p != nil, err
}
