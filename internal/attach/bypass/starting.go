package bypass

import (
	"context"
	"path"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/logkey"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// calm is how long a fresh cgroup must have been left in peace before values
	// are written; mostCalm is how long that is waited for.
	calm     = time.Millisecond
	mostCalm = 5 * time.Millisecond
	// lookFresh is how often a cgroup that is being made is looked at. The OCI
	// runtime takes some 20 ms from its end to the first instruction.
	lookFresh = 4 * time.Millisecond
	// mostStart is how long a container may take from its cgroup to its first
	// instruction before nobody watches its files for it any more.
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
	s.run(func() { f.follow(p, c) })
}

// unfollow ends what begin began.
func (s *session) unfollow(c *ctr) {
	if c.waiting == nil {
		c.waiting = make(chan struct{})
	}
	select {
	case <-c.waiting:
	default:
		close(c.waiting)
	}
}

// follow settles a starting container once the OCI runtime has done its part,
// and again whenever its cgroup is written to, until the runtime says that it
// runs. Where no process can be seen, it is settled only then.
func (f *fresh) follow(p *pod, c *ctr) {
	s := f.s
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer f.close()
	end := time.NewTimer(mostStart)
	defer end.Stop()
	again := s.firstAsk()
	ask := time.NewTimer(again)
	defer ask.Stop()
	look := time.NewTicker(lookFresh)
	defer look.Stop()
	for dirty := true; ; {
		f.open()
		at, creator := unclear, 0
		if dirty {
			at, creator = f.progress()
		}
		if at == ready {
			f.calm()
			s.settle(p, c)
			dirty = false
		}
		looks := look.C
		if at == making && f.awaits(ctx, creator) || !dirty && f.complete() {
			looks = nil // we are woken
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
		case <-looks:
			dirty = dirty || !f.complete()
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
		f.s.run(func() {
			_ = exit(ctx, pid) // where it cannot be waited for we look again and again
			f.waits.Store(false)
			f.poke()
		})
	}
	return f.waits.Load()
}

func (f *fresh) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// firstAsk is how long to wait before the runtime is asked whether a container
// runs. One that tells its events needs no asking, but may lose one.
func (s *session) firstAsk() time.Duration {
	if s.streaming() {
		return 200 * time.Millisecond
	}
	return 10 * time.Millisecond
}

// fresh is a cgroup that a runtime is filling.
type fresh struct {
	s       *session
	dir     string
	wake    chan struct{}
	done    <-chan struct{}
	watched map[string]bool
	awaited int         // the process that was waited for last
	waits   atomic.Bool // it is waited for
}

// files are the directories whose files tell what the runtime sets: in version
// 1 each controller has its own, made one after another.
func (f *fresh) files() []string {
	if f.s.a.o.Tree.Version == cgroup.V2 {
		return []string{f.dir}
	}
	return []string{path.Join("cpuset", f.dir), path.Join("cpu", f.dir), path.Join("memory", f.dir)}
}

// open watches what is there and not watched yet.
func (f *fresh) open() {
	for _, dir := range f.files() {
		if f.watched[dir] {
			continue
		}
		f.s.mu.Lock()
		f.s.starting[dir] = f.wake
		f.s.mu.Unlock()
		f.watched[dir] = f.s.watcher.Add(dir) == nil
	}
}

// complete reports whether all of it is watched.
func (f *fresh) complete() bool {
	for _, dir := range f.files() {
		if !f.watched[dir] {
			return false
		}
	}
	return true
}

func (f *fresh) close() {
	for dir := range f.watched {
		f.s.mu.Lock()
		delete(f.s.starting, dir)
		f.s.mu.Unlock()
		f.s.watcher.Remove(dir)
	}
}

// calm waits until nobody has written for a while.
func (f *fresh) calm() {
	most := time.NewTimer(mostCalm)
	defer most.Stop()
	for {
		still := time.NewTimer(calm)
		select {
		case <-f.wake:
			still.Stop()
			f.open()
		case <-still.C:
			return
		case <-most.C:
			still.Stop()
			return
		case <-f.done:
			still.Stop()
			return
		case <-f.s.ctx.Done():
			still.Stop()
			return
		}
	}
}

// written wakes who follows the start of a container.
func (s *session) written(file string) {
	s.mu.Lock()
	wake := s.starting[path.Dir(file)]
	s.mu.Unlock()
	if wake != nil && setting(path.Base(file)) {
		select {
		case wake <- struct{}{}:
		default:
		}
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

func setting(name string) bool { return settings[name] }

// appeared takes in cgroups of containers that are there.
func (s *session) appeared(found map[string]string) {
	for id, dir := range found {
		s.mu.Lock()
		k, known := s.kept[id]
		sandbox := s.pods[id] != nil
		busy := s.unknown[id] != ""
		if !known && !sandbox && !busy && len(s.unknown) < maxUnknown {
			s.unknown[id] = dir
		}
		s.mu.Unlock()
		switch {
		case known:
			s.hint(k.p.id, id, cgroupMade)
		case !sandbox && !busy:
			s.run(func() { s.resolve(id, dir) })
		}
	}
}

// vanished takes in that a directory went.
func (s *session) vanished(dir string) {
	s.mu.Lock()
	id, ok := s.byDir[dir]
	s.mu.Unlock()
	n := cgroup.Named(dir)
	switch {
	case ok:
		s.hintContainer(id, cgroupGone)
	case n.Sort == cgroup.ContainerDir && s.isPod(n.ID):
		s.run(func() { s.sandboxEnds(n.ID) })
	case n.Sort == cgroup.PodDir:
		s.run(s.relist)
	}
}

// sandboxEnds asks about a pod whose sandbox has lost its cgroup. Runtimes note
// the end a moment later; after that the lists tell.
func (s *session) sandboxEnds(id string) {
	for n := 0; n < maxVanish && pause(s.ctx, 10*time.Millisecond<<n) && s.isPod(id); n++ {
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
	defer func() {
		s.mu.Lock()
		delete(s.unknown, id)
		s.mu.Unlock()
	}()
	for delay, waited := 5*time.Millisecond, time.Duration(0); waited < mostUnknown; delay = min(2*delay, time.Second) {
		if known, err := s.whose(id); known || lost(err) {
			return
		}
		if !pause(s.ctx, delay) || !s.a.o.Tree.Exists(dir, "cpuset") {
			return
		}
		waited += delay
	}
	s.a.o.Log.Info("a cgroup has a container's name and the runtime knows none; it is left alone", logkey.File, dir)
}

// whose finds the pod of an id and leaves word for it.
func (s *session) whose(id string) (bool, error) {
	ctrs, err := ask(s.ctx, s.c.calls.ListContainers, "find a container", &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}})
	if err != nil {
		return false, err
	}
	for _, c := range ctrs.Containers {
		if c.Id == id {
			s.hint(c.PodSandboxId, id, askStatus|cgroupMade)
			return true, nil
		}
	}
	pods, err := ask(s.ctx, s.c.calls.ListPodSandbox, "find a pod", &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: id}})
	if err != nil {
		return false, err
	}
	for _, p := range pods.Items {
		if p.Id == id {
			s.hintPod(id)
			return true, nil
		}
	}
	return false, nil
}

// foundDir is where a cgroup of that id appeared that nobody knew.
func (s *session) foundDir(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unknown[id]
}
