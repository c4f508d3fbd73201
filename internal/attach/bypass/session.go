package bypass

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

const (
	// workers bounds the pods that are asked about at once.
	workers = 16
	// pollEvery is the least pause between two questions for the resources of
	// containers in turn, and pollAgain that between two for the same. Where the
	// conductor keeps a value, a write to it is noticed sooner.
	pollEvery = time.Second
	pollAgain = 10 * time.Second
)

// session is one connection to a runtime and what was reported of it since. All
// that is learned, by whichever way, becomes a hint for the pod it is about;
// its worker then asks the runtime for the current state and tells the difference.
// So nothing is reported twice, and nothing that was missed stays unreported.
type session struct {
	a       *Attachment
	ctx     context.Context // of everything this connection runs; ends with it
	c       *criclient.Client
	streams atomic.Bool // the runtime sends its events
	tasks   *tasks
	watcher cgroup.Watcher
	places  *places       // of one goroutine: who synchronises, then who serves
	learn   chan string   // directories of pods for places
	slots   chan struct{} // one for each pod that is being asked about
	index   index
	starts  starts
	once    sync.Once

	// copies is held while the runtime's copy of resources is asked for or
	// changed by us, so that our own change is never taken for another client's.
	copies sync.Mutex
}

func newSession(ctx context.Context, a *Attachment) (*session, error) {
	s := &session{a: a, learn: make(chan string, 256), slots: make(chan struct{}, workers), index: newIndex()}
	s.tasks = newTasks(ctx)
	s.ctx = s.tasks.ctx
	var err error
	if s.c, err = criclient.New(strings.TrimPrefix(a.o.Endpoint, "unix://"), a.o.Dial, a.o.Log); err != nil {
		s.tasks.cancel()
		return nil, err
	}
	r, err := s.c.About(s.ctx)
	if err == nil {
		a.runtime.Store(&r)
		s.streams.Store(r.Streams)
		s.watcher, err = a.o.Watch()
	}
	if err == nil {
		s.places, err = newPlaces(a.o.Tree, s.watcher, a.o.CgroupRoot)
	}
	if err != nil {
		s.finish()
		return nil, err
	}
	s.starts = starts{tree: a.o.Tree, proc: a.o.Proc, watcher: s.watcher}
	return s, nil
}

// finish closes everything and waits for it.
func (s *session) finish() {
	s.once.Do(func() {
		s.tasks.end(s.c.Close)
		if s.watcher != nil {
			_ = s.watcher.Close()
		}
	})
}

// serve turns what happens into hints until the connection is lost.
func (s *session) serve() error {
	s.tasks.run(func() {
		if err := s.c.Watch(s.ctx, s.relist); err != nil {
			s.tasks.fail(err)
		}
	})
	if s.streams.Load() {
		s.tasks.run(s.watchEvents)
	}
	resync := time.NewTicker(s.a.o.Resync)
	defer resync.Stop()
	poll := time.NewTicker(min(pollEvery, s.a.o.Look))
	defer poll.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case err := <-s.tasks.failed:
			return err
		case n := <-s.watcher.Notices():
			s.notice(n)
		case dir := <-s.learn:
			s.appeared(s.places.learn(dir))
		case <-resync.C:
			s.appeared(s.places.rescan())
			s.logBlind()
			s.tasks.run(s.relist)
		case <-poll.C:
			s.pollNext()
		}
	}
}

func (s *session) logBlind() {
	if s.places.blind != "" {
		s.a.o.Log.Warn("not every cgroup is watched; containers there are found later", logkey.Reason, s.places.blind, logkey.After, s.a.o.Resync)
	}
}

// notice takes in one change of the cgroup tree.
func (s *session) notice(n cgroup.Notice) {
	switch n.Change {
	case cgroup.Made:
		s.appeared(s.places.made(n.Path))
	case cgroup.Removed:
		if dir, ok := s.places.gone(n.Path); ok {
			s.vanished(dir)
		}
	case cgroup.Written:
		s.starts.written(n.Path)
	case cgroup.Overflow:
		s.a.o.Log.Warn("changes of cgroups were lost; looking at all of them")
		s.appeared(s.places.scan())
		s.tasks.run(s.relist)
	}
}

// eventsAfter is how long after a stream was opened a runtime surely tells on
// it. None says when it begins to, so what came between the lists and that moment
// is searched for once.
const eventsAfter = 500 * time.Millisecond

// watchEvents listens to the runtime's events. They are hints as all others: losing
// the stream costs time, not truth.
func (s *session) watchEvents() {
	delay := 50 * time.Millisecond
	for s.ctx.Err() == nil {
		stream, err := s.c.Events(s.ctx)
		if err == nil {
			s.tasks.later(eventsAfter, s.relist)
		}
		for err == nil {
			var e *cri.ContainerEventResponse
			if e, err = stream.Recv(); err == nil {
				delay = 50 * time.Millisecond
				s.event(e)
			}
		}
		switch {
		case s.ctx.Err() != nil:
			return
		case status.Code(err) == codes.Unimplemented:
			s.a.o.Log.Info("the runtime sends no events; the agent reads its lists when cgroups change", logkey.Err, err)
			s.streams.Store(false)
			s.relist() // what appeared so far was left to the events
			return
		case !errors.Is(err, io.EOF):
			s.a.o.Log.Warn("the runtime's events are interrupted", logkey.Err, err)
		}
		if !sleep.For(s.ctx, delay) {
			return
		}
		delay = min(2*delay, 5*time.Second)
		s.relist()
	}
}

func (s *session) event(e *cri.ContainerEventResponse) {
	sandbox := e.GetPodSandboxStatus().GetId()
	begins := e.ContainerEventType == cri.ContainerEventType_CONTAINER_CREATED_EVENT || e.ContainerEventType == cri.ContainerEventType_CONTAINER_STARTED_EVENT
	known := s.index.isPod(e.ContainerId)
	why := askStatus
	if e.ContainerEventType == cri.ContainerEventType_CONTAINER_STARTED_EVENT {
		why = runs // no question needed: the runtime is busy as it is
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

// pollNext asks for the resources of one running container: the kubelet
// changes them in place, and no runtime reports.
func (s *session) pollNext() {
	id := s.index.next(s.a.o.Look)
	if id != "" {
		s.hintContainer(id, askStatus)
	}
}
