package real_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/trimtab/trimtab/test/real"
)

// plugin is an NRI plugin of the test, made with the upstream stub. It stores every event.
type plugin struct {
	t    testing.TB
	stub stub.Stub

	create func(pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error)
	update func(c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error)
	fail   func(event, id string) error // what an event without an answer returns
	during func(event, pod, id string)  // called within each event
	synced chan struct{}                // closed when the plugin is synchronised
	once   sync.Once
	mu     sync.Mutex
	events []string // "Event name", in order
	pods   map[string]*api.PodSandbox
	ctrs   map[string]*api.Container
	start  []string // ids in Synchronize
}

func newPlugin(t testing.TB) *plugin {
	t.Helper()
	return &plugin{t: t, synced: make(chan struct{}), pods: map[string]*api.PodSandbox{}, ctrs: map[string]*api.Container{}}
}

// connect connects the plugin and waits until it is synchronised.
func (p *plugin) connect(socket, name, index string) *plugin {
	p.t.Helper()
	late := time.After(patiently)
	for {
		ended := p.begin(socket, name, index)
		select {
		case <-p.synced:
			return p
		case <-ended: // a busy machine may take longer than the stub waits for its registration
			<-time.After(100 * time.Millisecond)
		case <-late:
			p.t.Fatalf("plugin %s was not synchronised", name)
		}
	}
}

// begin connects the plugin. ended is closed when it is no longer connected.
func (p *plugin) begin(socket, name, index string) (ended <-chan struct{}) {
	p.t.Helper()
	s, err := stub.New(p, stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithSocketPath(socket), stub.WithOnClose(func() {}))
	if err != nil {
		p.t.Fatal(err)
	}
	p.stub = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	p.t.Cleanup(func() {
		s.Stop()
		cancel()
		<-done
	})
	return done
}

func (p *plugin) note(event, name, pod, id string) error {
	p.mu.Lock()
	p.events = append(p.events, event+" "+name)
	p.mu.Unlock()
	if p.during != nil {
		p.during(event, pod, id)
	}
	if p.fail != nil {
		return p.fail(event, id)
	}
	return nil
}

func (p *plugin) notePod(event string, pod *api.PodSandbox) error {
	p.mu.Lock()
	p.pods[event+" "+pod.GetName()] = pod
	p.mu.Unlock()
	return p.note(event, pod.GetName(), pod.GetId(), "")
}

func (p *plugin) noteContainer(event string, pod *api.PodSandbox, c *api.Container) error {
	p.mu.Lock()
	p.ctrs[event+" "+c.GetName()] = c
	p.mu.Unlock()
	return p.note(event, c.GetName(), pod.GetId(), c.GetId())
}

// of returns the events of one name.
func (p *plugin) of(names ...string) (events []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if event, name, _ := strings.Cut(e, " "); slices.Contains(names, name) {
			events = append(events, event+" "+name)
		}
	}
	return events
}

func (p *plugin) seen(event, name string) *api.Container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ctrs[event+" "+name]
}

func (p *plugin) seenPod(event, name string) *api.PodSandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[event+" "+name]
}

// becomes waits until the events with some names are as expected.
func (p *plugin) becomes(t testing.TB, want []string, names ...string) {
	t.Helper()
	real.Eventually(t, patiently, func() error {
		if got := p.of(names...); !slices.Equal(got, want) {
			return fmt.Errorf("events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

// becomesEither is becomes for two valid orders.
func (p *plugin) becomesEither(t testing.TB, one, other []string, names ...string) {
	t.Helper()
	real.Eventually(t, patiently, func() error {
		if got := p.of(names...); !slices.Equal(got, one) && !slices.Equal(got, other) {
			return fmt.Errorf("events are\n%s\nwant\n%s\nor the last two in the other order", strings.Join(got, "\n"), strings.Join(one, "\n"))
		}
		return nil
	})
}

func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
	p.mu.Lock()
	for _, pod := range pods {
		p.start = append(p.start, pod.GetId())
	}
	for _, c := range ctrs {
		p.start = append(p.start, c.GetId())
		p.ctrs["Synchronize "+c.GetName()] = c
		p.ctrs["Synchronize "+c.GetName()] = c
	}
	p.mu.Unlock()
	p.once.Do(func() { close(p.synced) })
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.notePod("RunPodSandbox", pod)
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.notePod("StopPodSandbox", pod)
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.notePod("RemovePodSandbox", pod)
}

func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if err := p.noteContainer("CreateContainer", pod, c); err != nil || p.create == nil {
		return nil, nil, err
	}
	return p.create(pod, c)
}

func (p *plugin) PostCreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.noteContainer("PostCreateContainer", pod, c)
}

func (p *plugin) StartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.noteContainer("StartContainer", pod, c)
}

func (p *plugin) PostStartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.noteContainer("PostStartContainer", pod, c)
}

func (p *plugin) UpdateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	if err := p.noteContainer("UpdateContainer", pod, c); err != nil || p.update == nil {
		return nil, err
	}
	return p.update(c, r)
}

func (p *plugin) PostUpdateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.noteContainer("PostUpdateContainer", pod, c)
}

func (p *plugin) StopContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.noteContainer("StopContainer", pod, c)
}

func (p *plugin) RemoveContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.noteContainer("RemoveContainer", pod, c)
}
