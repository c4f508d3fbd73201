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

// pipeNetwork replaces sockets by pipes in this process, so that a scenario can run in a bubble of testing/synctest. An
// address is the path of a socket or the name of a host.
type pipeNetwork struct {
	mu            sync.Mutex
	listeners     map[string]*pipeListener
	pluginProxies map[string]*pluginProxy // runtimes to which plugins can connect, by address
}

func newPipeNetwork() *pipeNetwork {
	return &pipeNetwork{listeners: map[string]*pipeListener{}, pluginProxies: map[string]*pluginProxy{}}
}

// Dial connects to the listener at an address.
func (m *pipeNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	l, proxy := m.listeners[address], m.pluginProxies[address]
	m.mu.Unlock()
	switch {
	case l != nil:
		return l.connect(ctx)
	case proxy != nil:
		return proxy.connect()
	}
	return nil, fmt.Errorf("nothing listens at %s", address)
}

// Listen listens at an address.
func (m *pipeNetwork) Listen(address string) (net.Listener, error) {
	l := &pipeListener{pipes: m, address: address, incoming: make(chan net.Conn), closed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners[address] != nil {
		return nil, fmt.Errorf("another listener has the address %s", address)
	}
	m.listeners[address] = l
	return l, nil
}

// serve lets plugins connect at an address. Their connections go to the plugin proxy g, which is a plugin of a runtime
// without a socket.
func (m *pipeNetwork) serve(address string, g *pluginProxy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pluginProxies[address] = g
}

// pingPlugins notifies the plugins of the end of a pod that does not exist. The agent starts deferred work when no
// event came for some time. pingPlugins restarts this time, so that the deferred work does not start together with the
// next event.
func (m *pipeNetwork) pingPlugins() {
	if m == nil {
		return
	}
	m.mu.Lock()
	proxies := slices.Collect(maps.Values(m.pluginProxies))
	m.mu.Unlock()
	for _, g := range proxies {
		if p := g.subscriber(api.Event_REMOVE_POD_SANDBOX); p != nil {
			_, _ = p.RemovePodSandbox(context.Background(), &api.RemovePodSandboxRequest{Pod: &api.PodSandbox{Id: "ping", Uid: "ping", Name: "ping"}})
		}
	}
}

// stopServing makes an address unreachable and closes the connection of the plugin that connected to this address.
func (m *pipeNetwork) stopServing(address string) {
	m.mu.Lock()
	g := m.pluginProxies[address]
	delete(m.pluginProxies, address)
	m.mu.Unlock()
	if g == nil {
		return
	}
	if p := g.connectedPlugin.Load(); p != nil {
		p.close()
	}
}

// pipeListener is a listener of pipes.
type pipeListener struct {
	pipes    *pipeNetwork
	address  string
	incoming chan net.Conn // the connections that Accept returns
	once     sync.Once     // for Close
	closed   chan struct{} // closed by Close
}

// connect makes a connection for a client. It waits until Accept has taken the other end.
func (l *pipeListener) connect(ctx context.Context) (net.Conn, error) {
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
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.pipes.mu.Lock()
		defer l.pipes.mu.Unlock()
		delete(l.pipes.listeners, l.address)
	})
	return nil
}

// Addr returns the listener's address.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: l.address, Net: "unix"} }

// pluginProxy is the only plugin that a runtime without a socket has. It is registered as a built-in plugin of NRI's
// adaptation and forwards all requests to the plugin that connected to it.
type pluginProxy struct {
	runtime         *Runtime
	connectedPlugin atomic.Pointer[pluginConn] // the connected plugin, after it was synchronised; nil if no plugin is connected
}

// pluginConn is the connection of a plugin.
type pluginConn struct {
	proxy      *pluginProxy
	conn       multiplex.Mux
	client     *ttrpc.Client     // for calls to the plugin
	server     *ttrpc.Server     // for calls by the plugin
	plugin     api.PluginService // the methods of the plugin, over client
	events     api.EventMask     // the events to which the plugin has subscribed
	registered chan struct{}     // closed when the plugin has registered
	closed     chan struct{}     // closed when the connection is closed
	once       sync.Once         // for close
}

// connect makes the connection of a plugin, as the listener of NRI's adaptation does. It returns the plugin's end of
// the connection.
func (g *pluginProxy) connect() (net.Conn, error) {
	ours, theirs := net.Pipe()
	p := &pluginConn{proxy: g, conn: multiplex.Multiplex(ours, multiplex.WithBlockedRead()), registered: make(chan struct{}), closed: make(chan struct{})}
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
func (p *pluginConn) start() {
	select {
	case <-p.registered:
	case <-p.closed:
		return
	}
	ctx := context.Background()
	name, version := p.proxy.runtime.opts.Kind.nriNameAndVersion()
	answer, err := p.plugin.Configure(ctx, &api.ConfigureRequest{
		RuntimeName: name, RuntimeVersion: version, NRIVersion: nriversion.GetFromBuildInfo(),
		RegistrationTimeout: api.DefaultPluginRegistrationTimeout.Milliseconds(), RequestTimeout: api.DefaultPluginRequestTimeout.Milliseconds(),
	})
	if err == nil {
		p.events = api.EventMask(answer.GetEvents())
		err = p.proxy.runtime.synchronize(ctx, func(ctx context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
			answer, err := p.plugin.Synchronize(ctx, &api.SynchronizeRequest{Pods: pods, Containers: ctrs})
			if err == nil {
				p.proxy.connectedPlugin.Store(p)
			}
			return answer.GetUpdate(), err
		})
	}
	if err != nil {
		p.proxy.runtime.opts.Log.Warn("the runtime cannot configure or synchronise a plugin", "err", err)
		p.close()
	}
}

// close closes the connection of the plugin. After the first call, it does nothing.
func (p *pluginConn) close() {
	p.once.Do(func() {
		close(p.closed)
		p.proxy.connectedPlugin.CompareAndSwap(p, nil)
		_ = errors.Join(p.conn.Close(), p.client.Close(), p.server.Close()) // nothing uses the connection any more
	})
}

// RegisterPlugin handles the registration of the plugin. It is the plugin's first call.
func (p *pluginConn) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	close(p.registered)
	return &api.Empty{}, nil
}

// messageDelay is the delay of each message between runtime and plugin. In a bubble of testing/synctest, the plugin
// finishes all other work during this delay, so that the order of events is deterministic.
const messageDelay = time.Millisecond

// waitDelay waits for messageDelay.
func waitDelay() { time.Sleep(messageDelay) } //nolint:forbidigo // in a bubble, time advances only while goroutines sleep

// UpdateContainers handles an unsolicited update of the plugin.
func (p *pluginConn) UpdateContainers(ctx context.Context, req *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	waitDelay()
	failed, err := p.proxy.runtime.applyUnsolicited(ctx, req.GetUpdate())
	return &api.UpdateContainersResponse{Failed: failed}, err
}

// subscriber returns the plugin if it has subscribed to an event, and nil otherwise.
func (g *pluginProxy) subscriber(e api.Event) api.PluginService {
	if p := g.connectedPlugin.Load(); p != nil && p.events.IsSet(e) {
		return p.plugin
	}
	return nil
}

// forwardNotification returns a handler that forwards an event to the plugin. It is for events whose answer is empty.
func forwardNotification[Q, A any](g *pluginProxy, e api.Event, call func(api.PluginService, context.Context, Q) (A, error)) func(context.Context, Q) error {
	return func(ctx context.Context, req Q) error {
		p := g.subscriber(e)
		if p == nil {
			return nil
		}
		waitDelay()
		_, err := call(p, ctx, req)
		waitDelay()
		return err
	}
}

// forwardRequest returns a handler that forwards an event to the plugin and returns the answer.
func forwardRequest[Q, A any](g *pluginProxy, e api.Event, call func(api.PluginService, context.Context, Q) (*A, error)) func(context.Context, Q) (*A, error) {
	return func(ctx context.Context, req Q) (*A, error) {
		p := g.subscriber(e)
		if p == nil {
			return new(A), nil
		}
		waitDelay()
		answer, err := call(p, ctx, req)
		waitDelay()
		return answer, err
	}
}

// builtin returns the proxy as a built-in plugin for the adaptation.
func (g *pluginProxy) builtin() *builtin.BuiltinPlugin {
	return &builtin.BuiltinPlugin{Base: "guest", Index: "50", Handlers: builtin.BuiltinHandlers{
		RunPodSandbox:        forwardNotification(g, api.Event_RUN_POD_SANDBOX, api.PluginService.RunPodSandbox),
		StopPodSandbox:       forwardNotification(g, api.Event_STOP_POD_SANDBOX, api.PluginService.StopPodSandbox),
		RemovePodSandbox:     forwardNotification(g, api.Event_REMOVE_POD_SANDBOX, api.PluginService.RemovePodSandbox),
		UpdatePodSandbox:     forwardRequest(g, api.Event_UPDATE_POD_SANDBOX, api.PluginService.UpdatePodSandbox),
		PostUpdatePodSandbox: forwardNotification(g, api.Event_POST_UPDATE_POD_SANDBOX, api.PluginService.PostUpdatePodSandbox),
		CreateContainer:      forwardRequest(g, api.Event_CREATE_CONTAINER, api.PluginService.CreateContainer),
		PostCreateContainer:  forwardNotification(g, api.Event_POST_CREATE_CONTAINER, api.PluginService.PostCreateContainer),
		StartContainer:       forwardNotification(g, api.Event_START_CONTAINER, api.PluginService.StartContainer),
		PostStartContainer:   forwardNotification(g, api.Event_POST_START_CONTAINER, api.PluginService.PostStartContainer),
		UpdateContainer:      forwardRequest(g, api.Event_UPDATE_CONTAINER, api.PluginService.UpdateContainer),
		PostUpdateContainer:  forwardNotification(g, api.Event_POST_UPDATE_CONTAINER, api.PluginService.PostUpdateContainer),
		StopContainer:        forwardRequest(g, api.Event_STOP_CONTAINER, api.PluginService.StopContainer),
		RemoveContainer:      forwardNotification(g, api.Event_REMOVE_CONTAINER, api.PluginService.RemoveContainer),
	}}
}

// startInMemory starts a runtime that listens in the pipe network, without a socket.
func (r *Runtime) startInMemory() error {
	g := &pluginProxy{runtime: r}
	name, version := r.opts.Kind.nriNameAndVersion()
	nowhere := r.opts.Socket + ".none"
	nri, err := adaptation.New(name, version, r.synchronize, r.applyUnsolicited,
		adaptation.WithPluginPath(nowhere), adaptation.WithPluginConfigPath(nowhere),
		adaptation.WithDisabledExternalConnections(), adaptation.WithBuiltinPlugins(g.builtin()))
	if err == nil {
		r.starting.Store(true)
		err = nri.Start()
		r.starting.Store(false)
	}
	if err == nil {
		err = os.WriteFile(r.opts.Socket, nil, 0o600) // clients check that the socket file exists
	}
	if err != nil {
		return fmt.Errorf("start the embedded runtime: %w", err)
	}
	r.nri = nri
	r.opts.pipes.serve(r.opts.Socket, g)
	return nil
}
