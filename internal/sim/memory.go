package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/adaptation/builtin"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	nriversion "github.com/containerd/nri/pkg/version"
	"github.com/containerd/ttrpc"
)

// memory replaces sockets by pipes in this process, so that a play can run in a bubble of testing/synctest. An address
// is the path of a socket that does not exist, or a host.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
	guests    map[string]*guest // functions that connect plugins, by address
}

func newMemory() *memory {
	return &memory{listeners: map[string]*memoryListener{}, guests: map[string]*guest{}}
}

// Dial connects to the listener at an address.
func (m *memory) Dial(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	l, guest := m.listeners[address], m.guests[address]
	m.mu.Unlock()
	switch {
	case l != nil:
		return l.connect(ctx)
	case guest != nil:
		return guest.connect()
	}
	return nil, fmt.Errorf("nothing listens at %s", address)
}

// Listen listens at an address. For a path it makes a file, since clients check that the socket exists.
func (m *memory) Listen(address string) (net.Listener, error) {
	l := &memoryListener{memory: m, address: address, incoming: make(chan net.Conn), closed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners[address] != nil {
		return nil, fmt.Errorf("another process listens at %s", address)
	}
	m.listeners[address] = l
	return l, nil
}

// serve lets plugins connect to a runtime at an address.
func (m *memory) serve(address string, g *guest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.guests[address] = g
}

// ping sends the plugins the end of a pod that does not exist. An agent that waits for an idle moment starts its wait
// again, so that the next event does not race with work that was about to start.
func (m *memory) ping() {
	if m == nil {
		return
	}
	m.mu.Lock()
	guests := slices.Collect(maps.Values(m.guests))
	m.mu.Unlock()
	for _, g := range guests {
		if p := g.subscriber(api.Event_REMOVE_POD_SANDBOX); p != nil {
			_, _ = p.RemovePodSandbox(context.Background(), &api.RemovePodSandboxRequest{Pod: &api.PodSandbox{Id: "ping", Uid: "ping", Name: "ping"}})
		}
	}
}

// leave stops serving an address and cuts its connections.
func (m *memory) leave(address string) {
	m.mu.Lock()
	g := m.guests[address]
	delete(m.guests, address)
	m.mu.Unlock()
	if g == nil {
		return
	}
	if p := g.live.Load(); p != nil {
		p.close()
	}
}

// memoryListener is a listener of pipes.
type memoryListener struct {
	memory   *memory
	address  string
	incoming chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (l *memoryListener) connect(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.incoming <- ours:
		return theirs, nil
	case <-l.closed:
		return nil, fmt.Errorf("nothing listens at %s any more", l.address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for a connection.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener.
func (l *memoryListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.memory.mu.Lock()
		defer l.memory.mu.Unlock()
		delete(l.memory.listeners, l.address)
	})
	return nil
}

// Addr returns the listener's address.
func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: l.address, Net: "unix"} }

// guest is the only plugin of a runtime without a socket. For the adaptation it is a built-in plugin, which is always
// registered. It passes requests on to the connected plugin.
type guest struct {
	r    *Runtime
	live atomic.Pointer[piped] // synchronised
}

// piped is a plugin's connection.
type piped struct {
	guest      *guest
	conn       multiplex.Mux
	client     *ttrpc.Client
	server     *ttrpc.Server
	plugin     api.PluginService
	events     api.EventMask
	registered chan struct{}
	closed     chan struct{}
	once       sync.Once
}

// connect makes a connection like the one that the adaptation's listener accepts.
func (g *guest) connect() (net.Conn, error) {
	ours, theirs := net.Pipe()
	p := &piped{guest: g, conn: multiplex.Multiplex(ours, multiplex.WithBlockedRead()), registered: make(chan struct{}), closed: make(chan struct{})}
	calls, err := p.conn.Open(multiplex.PluginServiceConn)
	if err != nil {
		return nil, err
	}
	p.client = ttrpc.NewClient(calls, ttrpc.WithOnClose(p.close))
	p.plugin = api.NewPluginClient(p.client)
	if p.server, err = ttrpc.NewServer(); err != nil {
		return nil, err
	}
	requests, err := p.conn.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		return nil, err
	}
	api.RegisterRuntimeService(p.server, p)
	go func() { _ = p.server.Serve(context.Background(), requests) }() // ends at close
	p.conn.Unblock()
	go p.start()
	return theirs, nil
}

// start configures and synchronises a plugin that has registered.
func (p *piped) start() {
	select {
	case <-p.registered:
	case <-p.closed:
		return
	}
	ctx := context.Background()
	name, version := p.guest.r.o.Kind.onNRI()
	answer, err := p.plugin.Configure(ctx, &api.ConfigureRequest{
		RuntimeName: name, RuntimeVersion: version, NRIVersion: nriversion.GetFromBuildInfo(),
		RegistrationTimeout: api.DefaultPluginRegistrationTimeout.Milliseconds(), RequestTimeout: api.DefaultPluginRequestTimeout.Milliseconds(),
	})
	if err == nil {
		p.events = api.EventMask(answer.GetEvents())
		err = p.guest.r.synchronize(ctx, func(ctx context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
			answer, err := p.plugin.Synchronize(ctx, &api.SynchronizeRequest{Pods: pods, Containers: ctrs})
			if err == nil {
				p.guest.live.Store(p)
			}
			return answer.GetUpdate(), err
		})
	}
	if err != nil {
		p.guest.r.o.Log.Warn("a plugin is not synchronised", "err", err)
		p.close()
	}
}

func (p *piped) close() {
	p.once.Do(func() {
		close(p.closed)
		p.guest.live.CompareAndSwap(p, nil)
		_ = errors.Join(p.conn.Close(), p.client.Close(), p.server.Close()) // ignores errors of what remains
	})
}

// RegisterPlugin is the plugin's first call.
func (p *piped) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	close(p.registered)
	return &api.Empty{}, nil
}

// messageDelay is the delay of each message. In a bubble the plugin finishes its other work meanwhile, so that the
// order is deterministic.
const messageDelay = time.Millisecond

// travel waits for the delay of a message.
func travel() { time.Sleep(messageDelay) } //nolint:forbidigo // in a bubble only this advances the time

// UpdateContainers receives an unsolicited update of the plugin.
func (p *piped) UpdateContainers(ctx context.Context, req *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	travel()
	failed, err := p.guest.r.unsolicited(ctx, req.GetUpdate())
	return &api.UpdateContainersResponse{Failed: failed}, err
}

// subscriber returns the plugin if it has subscribed to an event, else nil.
func (g *guest) subscriber(e api.Event) api.PluginService {
	if p := g.live.Load(); p != nil && p.events.IsSet(e) {
		return p.plugin
	}
	return nil
}

// notify passes on an event without an answer.
func notify[Q, A any](g *guest, e api.Event, call func(api.PluginService, context.Context, Q) (A, error)) func(context.Context, Q) error {
	return func(ctx context.Context, req Q) error {
		p := g.subscriber(e)
		if p == nil {
			return nil
		}
		travel()
		_, err := call(p, ctx, req)
		travel()
		return err
	}
}

// ask passes on an event with an answer.
func ask[Q, A any](g *guest, e api.Event, call func(api.PluginService, context.Context, Q) (*A, error)) func(context.Context, Q) (*A, error) {
	return func(ctx context.Context, req Q) (*A, error) {
		p := g.subscriber(e)
		if p == nil {
			return new(A), nil
		}
		travel()
		answer, err := call(p, ctx, req)
		travel()
		return answer, err
	}
}

// builtin returns the plugin for the adaptation.
func (g *guest) builtin() *builtin.BuiltinPlugin {
	return &builtin.BuiltinPlugin{Base: "guest", Index: "50", Handlers: builtin.BuiltinHandlers{
		RunPodSandbox:        notify(g, api.Event_RUN_POD_SANDBOX, api.PluginService.RunPodSandbox),
		StopPodSandbox:       notify(g, api.Event_STOP_POD_SANDBOX, api.PluginService.StopPodSandbox),
		RemovePodSandbox:     notify(g, api.Event_REMOVE_POD_SANDBOX, api.PluginService.RemovePodSandbox),
		UpdatePodSandbox:     ask(g, api.Event_UPDATE_POD_SANDBOX, api.PluginService.UpdatePodSandbox),
		PostUpdatePodSandbox: notify(g, api.Event_POST_UPDATE_POD_SANDBOX, api.PluginService.PostUpdatePodSandbox),
		CreateContainer:      ask(g, api.Event_CREATE_CONTAINER, api.PluginService.CreateContainer),
		PostCreateContainer:  notify(g, api.Event_POST_CREATE_CONTAINER, api.PluginService.PostCreateContainer),
		StartContainer:       notify(g, api.Event_START_CONTAINER, api.PluginService.StartContainer),
		PostStartContainer:   notify(g, api.Event_POST_START_CONTAINER, api.PluginService.PostStartContainer),
		UpdateContainer:      ask(g, api.Event_UPDATE_CONTAINER, api.PluginService.UpdateContainer),
		PostUpdateContainer:  notify(g, api.Event_POST_UPDATE_CONTAINER, api.PluginService.PostUpdateContainer),
		StopContainer:        ask(g, api.Event_STOP_CONTAINER, api.PluginService.StopContainer),
		RemoveContainer:      notify(g, api.Event_REMOVE_CONTAINER, api.PluginService.RemoveContainer),
	}}
}

// startInMemory starts a runtime without a socket.
func (r *Runtime) startInMemory() error {
	g := &guest{r: r}
	name, version := r.o.Kind.onNRI()
	nowhere := r.o.Socket + ".none"
	nri, err := adaptation.New(name, version, r.synchronize, r.unsolicited,
		adaptation.WithPluginPath(nowhere), adaptation.WithPluginConfigPath(nowhere),
		adaptation.WithDisabledExternalConnections(), adaptation.WithBuiltinPlugins(g.builtin()))
	if err == nil {
		r.starting.Store(true)
		err = nri.Start()
		r.starting.Store(false)
	}
	if err == nil {
		err = os.WriteFile(r.o.Socket, nil, 0o600) // clients check that the socket file exists
	}
	if err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	r.nri = nri
	r.o.memory.serve(r.o.Socket, g)
	return nil
}
