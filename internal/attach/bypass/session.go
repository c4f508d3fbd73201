package bypass

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

const (
	// maxPodChecks is how many pods the session may check at the same time.
	maxPodChecks = 16
	// maxPollPause is the pause between the polls of two containers, unless Options.PollInterval is shorter.
	// defaultPollInterval is the default of Options.PollInterval. If the keeper watches a container's cgroup file, the
	// agent notices a write to this file before the next poll.
	maxPollPause        = time.Second
	defaultPollInterval = 10 * time.Second
)

// session is one connection to a runtime, with the pods and containers that were reported over it. Events, lists and
// changes of cgroups all become hints: each makes the worker goroutine of one pod check something. The worker asks the
// runtime for the current state and reports what has changed. The session therefore reports nothing twice. If it loses
// an event, a later list shows the change.
type session struct {
	a            *Attachment
	ctx          context.Context // for everything that this connection runs; canceled when the connection ends
	c            *criclient.Client
	sendsEvents  atomic.Bool // the runtime sends events of pods and containers to every client that requests them
	tasks        *tasks
	watcher      cgroup.Watcher
	dirs         *dirWatcher         // only synchronise uses it, and later only serve, so it needs no lock
	podDirs      chan string         // cgroup directories of reported pods, which serve must watch
	slots        *semaphore.Weighted // one for each pod that is being checked
	index        index
	startWatcher startWatcher
	finishOnce   sync.Once

	// copiesMu is held while the session reads or updates the resources that the runtime stores. The session therefore
	// never takes its own update for a change by another client.
	copiesMu sync.Mutex
}

func newSession(ctx context.Context, a *Attachment) (*session, error) {
	s := &session{a: a, podDirs: make(chan string, 256), slots: semaphore.NewWeighted(maxPodChecks), index: newIndex()}
	s.tasks = newTasks(ctx)
	s.ctx = s.tasks.ctx
	var err error
	if s.c, err = criclient.New(strings.TrimPrefix(a.o.Endpoint, "unix://"), a.o.Dial, a.o.Log); err != nil {
		s.tasks.fail(nil)
		return nil, err
	}
	r, err := s.c.About(s.ctx)
	if err == nil {
		a.runtime.Store(&r)
		s.sendsEvents.Store(r.StreamsEvents)
		s.watcher, err = a.o.Watch()
	}
	if err != nil {
		s.finish()
		return nil, err
	}
	s.dirs = newDirWatcher(a.o.Tree, s.watcher, a.roots)
	s.startWatcher = startWatcher{tree: a.o.Tree, proc: a.o.Proc, watcher: s.watcher}
	return s, nil
}

// finish closes the session's connections and watches, and waits until its goroutines have ended.
func (s *session) finish() {
	s.finishOnce.Do(func() {
		s.tasks.stop(s.c.Close)
		if s.watcher != nil {
			_ = s.watcher.Close()
		}
	})
}

// serve turns events into hints until the connection is lost.
func (s *session) serve() error {
	s.tasks.run(func() {
		if err := s.c.Watch(s.ctx, s.relist); err != nil {
			s.tasks.fail(err)
		}
	})
	if s.sendsEvents.Load() {
		s.tasks.run(s.watchEvents)
	}
	resync := time.NewTicker(s.a.o.Resync)
	defer resync.Stop()
	poll := time.NewTicker(min(maxPollPause, s.a.o.PollInterval))
	defer poll.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case n := <-s.watcher.Notices():
			s.handleNotice(n)
		case dir := <-s.podDirs:
			s.handleNewCgroups(s.dirs.watchListedPod(dir))
		case <-resync.C:
			s.handleNewCgroups(s.dirs.rescan())
			s.logUnwatched()
			s.tasks.run(s.relist)
		case <-poll.C:
			s.pollNext()
		}
	}
}

// logUnwatched logs why a directory could not be watched. It logs nothing if all directories are watched.
func (s *session) logUnwatched() {
	if s.dirs.watchError != "" {
		s.a.o.Log.Warn("the agent cannot watch a cgroup directory, so it finds new containers in this directory later", logkey.Reason, s.dirs.watchError, logkey.After, s.a.o.Resync)
	}
}

// handleNotice handles one change of the cgroup tree.
func (s *session) handleNotice(n cgroup.Notice) {
	switch n.Change {
	case cgroup.Created:
		s.handleNewCgroups(s.dirs.handleCreated(n.Path))
	case cgroup.Removed:
		if dir, ok := s.dirs.handleRemoved(n.Path); ok {
			s.handleRemovedCgroup(dir)
		}
	case cgroup.Written:
		s.startWatcher.wakeWatcher(n.Path)
	case cgroup.Overflow:
		s.a.o.Log.Warn("inotify lost notices of cgroup changes; the agent reads the directories of all pods again")
		s.handleNewCgroups(s.dirs.scan())
		s.tasks.run(s.relist)
	}
}

// streamStartDelay is the time after which a newly opened stream certainly delivers events. No runtime reports when its
// stream begins to deliver them. After this time the session compares the lists once, to find changes that happened
// before.
const streamStartDelay = 500 * time.Millisecond

// watchEvents reads the runtime's events until the connection ends. After a break of the stream, the session compares
// the runtime's lists of pods and containers with the index, to find the changes without events.
func (s *session) watchEvents() {
	delay := 50 * time.Millisecond
	for s.ctx.Err() == nil {
		stream, err := s.c.Events(s.ctx)
		if err == nil {
			s.tasks.runAfter(streamStartDelay, s.relist)
		}
		for err == nil {
			var e *cri.ContainerEventResponse
			if e, err = stream.Recv(); err == nil {
				delay = 50 * time.Millisecond
				s.handleEvent(e)
			}
		}
		switch {
		case s.ctx.Err() != nil:
			return
		case status.Code(err) == codes.Unimplemented:
			s.a.o.Log.Info("the runtime sends no events; the agent lists pods and containers when cgroups change", logkey.Err, err)
			s.sendsEvents.Store(false)
			s.relist() // to find what events should have reported so far
			return
		case !errors.Is(err, io.EOF):
			s.a.o.Log.Warn("the stream of the runtime's events was interrupted; the agent opens a new one", logkey.Err, err)
		}
		if !sleep.For(s.ctx, delay) {
			return
		}
		delay = min(2*delay, 5*time.Second)
		s.relist()
	}
}

// handleEvent turns an event of the runtime into a hint.
func (s *session) handleEvent(e *cri.ContainerEventResponse) {
	sandbox := e.GetPodSandboxStatus().GetId()
	begins := e.ContainerEventType == cri.ContainerEventType_CONTAINER_CREATED_EVENT || e.ContainerEventType == cri.ContainerEventType_CONTAINER_STARTED_EVENT
	known := s.index.isPod(e.ContainerId)
	why := askStatus
	if e.ContainerEventType == cri.ContainerEventType_CONTAINER_STARTED_EVENT {
		why = startEvent // for a known container, the check then sends no request to the runtime, which is busy now
	}
	switch {
	case e.ContainerId == "":
	case sandbox == e.ContainerId, known:
		if !known || !begins {
			s.hintPod(e.ContainerId)
		}
	case sandbox != "":
		s.hint(sandbox, e.ContainerId, why)
	default:
		s.hintContainer(e.ContainerId, why)
	}
}

// pollNext makes a worker read the resources of one container. The session must poll, because no runtime reports that
// the kubelet has changed resources in place.
func (s *session) pollNext() {
	id := s.index.nextToPoll(s.a.o.PollInterval)
	if id != "" {
		s.hintContainer(id, askStatus)
	}
}
