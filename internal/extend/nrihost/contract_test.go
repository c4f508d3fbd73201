package nrihost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ledger is a plugin that stores which objects the host reported to it. It notes every event that does not fit: an
// object that is reported twice, or an event of an object that was never reported.
type ledger struct {
	stub   stub.Stub
	synced chan struct{}
	during func(event, id string) error

	mu     sync.Mutex
	known  map[string]bool
	faults []string
	events []string // "Event name"
}

// begins are the events with which an object begins. Before a container exists, its id may be provisional.
var begins = map[string]bool{"RunPodSandbox": true, "PostCreateContainer": true}

func (l *ledger) note(event, id, name string) error {
	l.mu.Lock()
	l.events = append(l.events, event+" "+name)
	switch known := l.known[id]; {
	case event == "CreateContainer": // the id is final in the next event
	case begins[event] && known:
		l.faults = append(l.faults, fmt.Sprintf("%s of %s %s, which the plugin had already", event, name, id))
	case strings.HasPrefix(event, "Remove"): // also of what stopped before the plugin connected, which its synchronisation does not have
	case !begins[event] && !known:
		l.faults = append(l.faults, fmt.Sprintf("%s of %s %s, which the host never reported to the plugin", event, name, id))
	}
	if event != "CreateContainer" {
		l.known[id] = true
	}
	if strings.HasPrefix(event, "Remove") {
		delete(l.known, id)
	}
	l.mu.Unlock()
	if l.during != nil {
		return l.during(event, id)
	}
	return nil
}

func (l *ledger) Synchronize(_ context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range pods {
		l.known[p.GetId()] = true
	}
	for _, c := range ctrs {
		l.known[c.GetId()] = true
	}
	close(l.synced)
	return nil, nil
}

func (l *ledger) RunPodSandbox(_ context.Context, p *api.PodSandbox) error {
	return l.note("RunPodSandbox", p.GetId(), p.GetName())
}

func (l *ledger) StopPodSandbox(_ context.Context, p *api.PodSandbox) error {
	return l.note("StopPodSandbox", p.GetId(), p.GetName())
}

func (l *ledger) RemovePodSandbox(_ context.Context, p *api.PodSandbox) error {
	return l.note("RemovePodSandbox", p.GetId(), p.GetName())
}

func (l *ledger) CreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, l.note("CreateContainer", c.GetId(), c.GetName())
}

func (l *ledger) PostCreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return l.note("PostCreateContainer", c.GetId(), c.GetName())
}

func (l *ledger) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return l.note("StartContainer", c.GetId(), c.GetName())
}

func (l *ledger) PostStartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return l.note("PostStartContainer", c.GetId(), c.GetName())
}

func (l *ledger) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, l.note("StopContainer", c.GetId(), c.GetName())
}

func (l *ledger) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return l.note("RemoveContainer", c.GetId(), c.GetName())
}

func (l *ledger) is() (events, faults []string, known map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events), slices.Clone(l.faults), maps.Clone(l.known)
}

// ledger connects a plugin with a ledger, and waits until it is synchronised.
func (g *rig) ledger(name, index string, during func(event, id string) error) *ledger {
	g.t.Helper()
	eventually(g.t, func() error {
		if !g.host.serving.Load() {
			return errors.New("the host does not run")
		}
		return nil
	})
	l := &ledger{synced: make(chan struct{}), known: map[string]bool{}, during: during}
	var err error
	if l.stub, err = stub.New(l, stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithSocketPath(g.host.opts.Socket), stub.WithOnClose(func() {})); err != nil {
		g.t.Fatal(err)
	}
	if err := l.stub.Start(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(l.stub.Stop)
	<-l.synced
	return l
}

// TestNothingIsLost has plugins connect while pods and containers come and go: the host reports every object
// to each plugin exactly once, by its synchronisation or by an event, and every end of an object that the plugin knows.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	g.ledger("first", "01", nil)
	ctx := t.Context()
	stop := make(chan struct{})
	var churn sync.WaitGroup
	for w := range 4 {
		churn.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				pod, err := g.runPod(fmt.Sprintf("p%d-%d", w, n))
				if err != nil {
					t.Error(err)
					return
				}
				for k := range 2 {
					id, err := g.create(pod, fmt.Sprint("c", k))
					if err != nil {
						t.Error(err)
						return
					}
					if k == 0 {
						_, err = g.calls.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
					} else if n%2 == 0 {
						_, err = g.calls.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
					}
					if err != nil {
						t.Error(err)
					}
				}
				if n%3 == 0 {
					continue // this one stays
				}
				if _, err := g.calls.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
					t.Error(err)
				}
				if _, err := g.calls.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var late []*ledger
	for n := range 6 {
		l := g.ledger(fmt.Sprint("late-", n), fmt.Sprint(20+n), nil)
		late = append(late, l)
		eventually(t, func() error { // until it has seen some of the churn itself
			if events, _, _ := l.is(); len(events) < 12 {
				return fmt.Errorf("%d events", len(events))
			}
			return nil
		})
	}
	close(stop)
	churn.Wait()
	want := map[string]bool{}
	pods, err := g.direct.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.GetItems() {
		want[p.GetId()] = true
	}
	ctrs, err := g.direct.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range ctrs.GetContainers() {
		want[c.GetId()] = true
	}
	for i, l := range late {
		_, faults, known := l.is()
		if len(faults) > 0 {
			t.Errorf("plugin %d, %d faults: %s", i, len(faults), faults[0])
		}
		if !maps.Equal(known, want) {
			t.Errorf("plugin %d knows %d objects, and %d exist", i, len(known), len(want))
		}
	}
	if len(want) == 0 {
		t.Error("nothing is left to compare")
	}
}

// TestStoppedSandbox: nothing is created in a sandbox that has stopped, or while it stops, and plugins are asked about
// neither. A new sandbox of the same pod works.
func TestStoppedSandbox(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	hold, held := make(chan struct{}), make(chan struct{})
	l := g.ledger("holds", "10", func(event, _ string) error {
		if event == "StopPodSandbox" {
			close(held)
			<-hold
		}
		return nil
	})
	pod, err := g.runPod("p")
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() {
		_, err := g.calls.StopPodSandbox(context.Background(), &cri.StopPodSandboxRequest{PodSandboxId: pod})
		stopped <- err
	}()
	<-held
	refused := func(when string) {
		t.Helper()
		if _, err := g.create(pod, "c"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), pod) {
			t.Errorf("a container of a sandbox %s: %v", when, err)
		}
	}
	refused("that stops")
	close(hold)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	refused("that has stopped")
	if events, faults, _ := l.is(); !slices.Equal(events, []string{"RunPodSandbox p", "StopPodSandbox p"}) || len(faults) > 0 {
		t.Errorf("events %v, faults %v", events, faults)
	}
	if c, err := g.direct.ListContainers(t.Context(), &cri.ListContainersRequest{}); err != nil || len(c.GetContainers()) > 0 {
		t.Errorf("left behind: %v, %v", c, err)
	}
}

// TestStopWaits: the stop of a sandbox waits for a creation that has begun, so that plugins see its events first.
func TestStopWaits(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	hold, held := make(chan struct{}), make(chan struct{})
	l := g.ledger("holds", "10", func(event, _ string) error {
		if event == "CreateContainer" {
			close(held)
			<-hold
		}
		return nil
	})
	pod, err := g.runPod("p")
	if err != nil {
		t.Fatal(err)
	}
	created, stopped := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := g.create(pod, "c")
		created <- err
	}()
	<-held
	go func() {
		_, err := g.calls.StopPodSandbox(context.Background(), &cri.StopPodSandboxRequest{PodSandboxId: pod})
		stopped <- err
	}()
	eventually(t, func() error {
		if !g.host.objects.isEnding(pod) {
			return errors.New("the stop has not begun")
		}
		return nil
	})
	close(hold)
	if err := errors.Join(<-created, <-stopped); err != nil {
		t.Error(err)
	}
	if events, faults, _ := l.is(); !slices.Equal(events, []string{"RunPodSandbox p", "CreateContainer c", "PostCreateContainer c", "StopContainer c", "StopPodSandbox p"}) || len(faults) > 0 {
		t.Errorf("events %v, faults %v", events, faults)
	}
}

// TestHidden: while plugins are asked about a sandbox, every call about it finds none.
func TestHidden(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	g.ledger("looks", "10", func(event, id string) error {
		if event != "RunPodSandbox" {
			return nil
		}
		if s, err := g.calls.PodSandboxStatus(context.Background(), &cri.PodSandboxStatusRequest{PodSandboxId: id}); status.Code(err) != codes.NotFound {
			t.Errorf("its status: %v, %v", s, err)
		}
		for _, f := range []*cri.PodSandboxFilter{nil, {Id: id}, {State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}}} {
			if l, err := g.calls.ListPodSandbox(context.Background(), &cri.ListPodSandboxRequest{Filter: f}); err != nil || len(l.GetItems()) > 0 {
				t.Errorf("the list with the filter %v: %v, %v", f, l, err)
			}
		}
		if id, err := g.create(id, "early"); err == nil {
			t.Errorf("a container %s is created in it", id)
		}
		return nil
	})
	pod, err := g.runPod("p")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := g.calls.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod}); err != nil || s.GetStatus().GetState() != cri.PodSandboxState_SANDBOX_READY {
		t.Errorf("afterwards: %v, %v", s, err)
	}
}

// TestFailureOfOne: the plugins before and after one that fails go on. If one of them refuses an object, the
// host reports the removal to all, nothing is left, and the same call succeeds later.
func TestFailureOfOne(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	var mu sync.Mutex
	refused, dies := "RunPodSandbox", false
	first := g.ledger("first", "10", nil)
	var middle *ledger
	middle = g.ledger("middle", "20", func(event, _ string) error {
		mu.Lock()
		die, refuse := dies && event == "CreateContainer", event == refused
		mu.Unlock()
		if die {
			go middle.stub.Stop()
			<-t.Context().Done()
		}
		if refuse {
			return errors.New("not now")
		}
		return nil
	})
	last := g.ledger("last", "30", nil)
	refuse := func(event string, die bool) {
		mu.Lock()
		defer mu.Unlock()
		refused, dies = event, die
	}
	if _, err := g.runPod("p"); err == nil || !strings.Contains(err.Error(), "20-middle") || !strings.Contains(err.Error(), "not now") {
		t.Errorf("a refused sandbox: %v", err)
	}
	if l, err := g.direct.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{}); err != nil || len(l.GetItems()) > 0 {
		t.Errorf("left behind: %v, %v", l, err)
	}
	refuse("", false)
	pod, err := g.runPod("p")
	if err != nil {
		t.Fatal(err)
	}
	refuse("CreateContainer", false)
	if _, err := g.create(pod, "c"); err == nil || !strings.Contains(err.Error(), "20-middle") {
		t.Errorf("a refused container: %v", err)
	}
	refuse("", false)
	id, err := g.create(pod, "c")
	if err != nil {
		t.Fatal(err)
	}
	refuse("StartContainer", false)
	if _, err := g.calls.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: id}); err == nil || !strings.Contains(err.Error(), "20-middle") {
		t.Errorf("a refused start: %v", err)
	}
	for _, event := range []string{"PostCreateContainer", "PostStartContainer", "StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox"} {
		refuse(event, false) // the plugin is only notified
		told, err := g.runPod("told-" + event)
		if err != nil {
			t.Fatal(err)
		}
		c, err := g.create(told, "told")
		if err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		if _, err := g.calls.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: c}); err != nil {
			t.Errorf("%s: %v", event, err)
		}
		if _, err := g.calls.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: told}); err != nil {
			t.Errorf("%s: %v", event, err)
		}
	}
	refuse("", true)
	if _, err := g.create(pod, "goes-on"); err != nil {
		t.Errorf("a creation during which a plugin dies: %v", err)
	}
	named, calls := false, uint64(0)
	for _, p := range g.host.State().Plugins {
		if p.Name == "20-middle" {
			named, calls = !p.Connected && p.Err != "" && p.Failed > 0, p.Calls
		}
	}
	if !named {
		t.Errorf("the status does not name the plugin that died: %+v", g.host.State().Plugins)
	}
	if _, err := g.create(pod, "goes-on-without"); err != nil {
		t.Errorf("a creation after a plugin died: %v", err)
	}
	for _, p := range g.host.State().Plugins {
		if p.Name == "20-middle" && p.Calls != calls {
			t.Errorf("the plugin that died is still asked: %+v", p)
		}
	}
	events, faults, known := first.is()
	if len(faults) > 0 || !known[pod] || !known[id] || len(known) != 4 {
		t.Errorf("the plugin before it: faults %v, it knows %v", faults, known)
	}
	// The library asks no further plugins about an event that one has failed.
	after, _, _ := last.is()
	for _, want := range []string{"CreateContainer goes-on", "PostCreateContainer goes-on"} {
		if !slices.Contains(events, want) || !slices.Contains(after, want) {
			t.Errorf("%s is missing: %v, %v", want, events, after)
		}
	}
}
