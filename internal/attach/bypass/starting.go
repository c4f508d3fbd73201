package bypass

import (
	"context"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

const (
	// calm is how long a fresh cgroup must have been left in peace before values
	// are written; mostCalm is how long that is waited for.
	calm     = time.Millisecond
	mostCalm = 5 * time.Millisecond
	// pollFresh is how often a cgroup that is being made is polled. The OCI
	// runtime takes some 20 ms from its end to the first instruction.
	pollFresh = 4 * time.Millisecond
	// mostStart is how long a container may take from its cgroup to its first
	// instruction; after that the agent watches its files no longer.
	mostStart = 30 * time.Second
)

// begin follows a container from the moment its cgroup is there until the
// runtime says that it runs: what the runtime writes into the fresh cgroup must
// not have the last word.
func (s *session) begin(p *pod, c *ctr) {
	c.waiting = make(chan struct{})
	f := &fresh{
		s: s, dir: c.dir, wake: make(chan struct{}, 1), done: c.waiting, watched: map[string]bool{},
	}
	s.tasks.run(func() { f.watch(p, c) })
}

// watch reconciles a starting container once the OCI runtime has done its part,
// and again whenever its cgroup is written to, until the runtime says that it
// runs. Where no process can be seen, it is reconciled only then.
func (f *fresh) watch(p *pod, c *ctr) {
	s := f.s
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer f.close()
	end := time.NewTimer(mostStart)
	defer end.Stop()
	// How long to wait before the runtime is asked whether it runs. One that tells its
	// events needs no asking, but may lose one.
	again := 10 * time.Millisecond
	if s.streams.Load() {
		again = 200 * time.Millisecond
	}
	ask := time.NewTimer(again)
	defer ask.Stop()
	poll := time.NewTicker(pollFresh)
	defer poll.Stop()
	for dirty := true; ; {
		f.open()
		at, creator := unclear, 0
		if dirty {
			at, creator = s.starts.progress(f.dir)
		}
		if at == ready {
			f.calm()
			s.reconcile(p, c)
			dirty = false
		}
		polls := poll.C
		if at == making && f.awaits(ctx, creator) || !dirty && f.complete {
			polls = nil // we are woken
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
			dirty = dirty || !f.complete
		case <-ask.C:
			s.hint(p.id, c.id, askStatus)
			again = min(2*again, time.Second)
			ask.Reset(again)
		}
	}
}

// awaits reports whether we are woken when a process ends, and sees to it.
func (f *fresh) awaits(ctx context.Context, pid int) bool {
	if f.s.a.o.Proc != defaultProc {
		return false // processes of another machine
	}
	if f.awaited != pid {
		f.awaited = pid
		f.waits.Store(true)
		f.s.tasks.run(func() {
			_ = exit(ctx, pid) // where it cannot be waited for we poll
			f.waits.Store(false)
			connect.Poke(f.wake)
		})
	}
	return f.waits.Load()
}

// fresh is a cgroup that a runtime is filling.
type fresh struct {
	s        *session
	dir      string
	wake     chan struct{}
	done     <-chan struct{}
	watched  map[string]bool
	complete bool        // all of it is watched
	awaited  int         // the process that was waited for last
	waits    atomic.Bool // it is waited for
}

// files are the directories whose files report what the runtime sets: in version
// 1 each controller has its own, made one after another.
func (f *fresh) files() []string {
	if f.s.a.o.Tree.Version == cgroup.V2 {
		return []string{f.dir}
	}
	return []string{path.Join("cpuset", f.dir), path.Join("cpu", f.dir), path.Join("memory", f.dir)}
}

// open watches what is there and not watched yet.
func (f *fresh) open() {
	f.complete = true
	for _, dir := range f.files() {
		f.watched[dir] = f.watched[dir] || f.s.starts.watch(dir, f.wake)
		f.complete = f.complete && f.watched[dir]
	}
}

func (f *fresh) close() {
	for dir := range f.watched {
		f.s.starts.unwatch(dir)
	}
}

// calm waits until nobody has written for a while.
func (f *fresh) calm() {
	most := time.NewTimer(mostCalm)
	defer most.Stop()
	still := time.NewTimer(calm)
	defer still.Stop()
	for {
		select {
		case <-f.wake:
			f.open()
			still.Reset(calm)
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

// starts are the cgroups that are watched while runtimes fill them, in the tree and by
// its processes.
type starts struct {
	tree    *cgroup.Tree
	proc    string
	watcher cgroup.Watcher

	waking sync.Map // channels that are woken when a file below a directory is written
}

// watch reports whether a directory is watched from now on.
func (s *starts) watch(dir string, wake chan struct{}) bool {
	s.waking.Store(dir, wake)
	return s.watcher.Add(dir) == nil
}

func (s *starts) unwatch(dir string) {
	s.waking.Delete(dir)
	s.watcher.Remove(dir)
}

// written wakes who follows the start of a container.
func (s *starts) written(file string) {
	wake, _ := s.waking.Load(path.Dir(file))
	if to, waits := wake.(chan struct{}); waits && settings[path.Base(file)] {
		connect.Poke(to)
	}
}

// settings are the files of which the runtime's writes matter, that of the
// processes it moves there among them.
var settings = settingFiles()

func settingFiles() map[string]bool {
	files := map[string]bool{procsFile: true}
	for _, row := range cgroup.Settings() {
		files[row.V1.Name], files[row.V2.Name] = true, true
	}
	return files
}

// appeared takes in cgroups of containers that are there.
func (s *session) appeared(found map[string]string) {
	for id, dir := range found {
		switch podID, ask := s.index.found(id, dir); {
		case podID != "":
			s.hint(podID, id, cgroupMade)
		case ask:
			s.tasks.run(func() { s.resolve(id, dir) })
		}
	}
}

// vanished takes in that a directory went.
func (s *session) vanished(dir string) {
	id, ok := s.index.at(dir)
	n := cgroup.ParseName(dir)
	switch {
	case ok:
		s.hintContainer(id, cgroupGone)
	case n.Kind == cgroup.ContainerDir && s.index.isPod(n.ID):
		s.tasks.run(func() { s.sandboxEnds(n.ID) })
	case n.Kind == cgroup.PodDir:
		s.tasks.run(s.relist)
	}
}

// sandboxEnds asks about a pod whose sandbox has lost its cgroup. Runtimes note
// the end a moment later; after that the lists show.
func (s *session) sandboxEnds(id string) {
	for n := 0; n < maxVanish && sleep.For(s.ctx, 10*time.Millisecond<<n) && s.index.isPod(id); n++ {
		s.hintPod(id)
	}
}

const (
	// maxUnknown bounds the cgroups that are asked about at once.
	maxUnknown = 1024
	// mostUnknown is how long the runtime may take to know what a cgroup is for.
	mostUnknown = 15 * time.Second
)

// resolve asks the runtime what a cgroup is for that bears a container's name.
// A cgroup appears before who made it knows it by name, so it asks again.
func (s *session) resolve(id, dir string) {
	defer s.index.resolved(id)
	for delay, waited := 5*time.Millisecond, time.Duration(0); waited < mostUnknown; delay = min(2*delay, time.Second) {
		if known, err := s.whose(id); known || criclient.Away(s.ctx, err) {
			return
		}
		if !sleep.For(s.ctx, delay) || !s.a.o.Tree.Has(dir) {
			return
		}
		waited += delay
	}
	s.a.o.Log.Info("a cgroup has a container's name and the runtime knows none; it is left alone", logkey.File, dir)
}

// whose finds the pod of an id and hints at it.
func (s *session) whose(id string) (bool, error) {
	c, err := s.c.ListedContainer(s.ctx, id)
	if err != nil {
		return false, err
	}
	if c != nil {
		s.hint(c.PodSandboxId, id, askStatus|cgroupMade)
		return true, nil
	}
	p, err := s.c.ListedPod(s.ctx, id)
	if p != nil {
		s.hintPod(id)
	}
	return p != nil, err
}
