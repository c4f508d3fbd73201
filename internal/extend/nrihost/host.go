package nrihost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
	"github.com/trimtab/trimtab/internal/socket"
)

// Validator is the configuration of the NRI library's default validator.
type Validator = validator.DefaultValidatorConfig

// Options configure a Host. Socket, RuntimeSocket and Log are required.
type Options struct {
	Socket           string // the socket for plugins; a lock file and a private directory are beside the socket
	PluginPath       string // the directory of pre-installed plugins
	PluginConfigPath string // the directory of the configuration files of pre-installed plugins
	// RegistrationTimeout and RequestTimeout limit the time that a plugin may take for its registration and for the
	// answer to one request. 0 leaves the value of the NRI library unchanged. The library has global variables for both
	// values, so all hosts of a process use the values of the host that was opened last.
	RegistrationTimeout, RequestTimeout time.Duration
	DisableConnections                  bool       // there is no socket for plugins; only pre-installed plugins run
	Validator                           *Validator // nil means no validator
	// ReportUnsupported means that the host logs the fields of an adjustment that it cannot apply, and creates the
	// container without these fields. Otherwise the creation fails.
	ReportUnsupported bool
	// FailClosed means that the host refuses creations of pods and containers while it does not serve plugins
	// (failurePolicy.agent: fail). Otherwise it forwards the creations to the runtime.
	FailClosed       bool
	JournalDirectory string        // the directory of the journal; "" means no journal
	RuntimeSocket    string        // the path of the runtime's socket
	Dial             socket.Dialer // connects to RuntimeSocket; nil means package net
	Log              *slog.Logger
	// Recorder counts the requests to plugins for metrics; nil means no metrics.
	Recorder Recorder
	// PollInterval is the interval at which the host lists the runtime's containers, to find containers that ended
	// without a CRI call. The default is 1 s.
	PollInterval time.Duration
}

// Host is the NRI host. It serves NRI to plugins, and serves CRI clients in front of the agent's CRI proxy.
type Host struct {
	opts    Options
	log     *slog.Logger
	objects *objectStore
	hidden  *hiddenObjects
	journal journal
	plugins *plugins

	serving         atomic.Bool   // the host serves plugins
	provisionalIDs  atomic.Uint64 // the last provisional id of a container
	runningNRICalls atomic.Int64  // the number of running CRI calls that NRI plugins can change (nriCalls)
	openingMutex    sync.RWMutex  // locked for reading during a creation, and for writing while the host starts to serve plugins
	eventMutex      sync.Mutex    // held during each NRI event, so that an error can name the plugin that failed at this event

	mu            sync.Mutex // guards server, stopCalled and notServingErr
	server        *grpc.Server
	stopCalled    bool  // Stop was called
	notServingErr error // the reason why the host does not serve plugins

	// The method Serve sets runtime and runtimeConn. The method open sets the other fields before serving becomes true.
	nri            *adaptation.Adaptation
	hasOwnPlugins  bool // Options has pre-installed plugins or the library's validator
	pluginListener *pluginListener
	runtime        cri.RuntimeServiceClient // reaches the runtime through the CRI proxy
	runtimeConn    *grpc.ClientConn         // the connection of runtime
	specStore      *specStore               // nil if the host cannot change the runtime's stored specs
}

// New returns a Host. Serve starts it.
func New(o Options) *Host {
	o.PollInterval = cmp.Or(max(o.PollInterval, 0), time.Second)
	if o.Recorder == nil {
		o.Recorder = noRecorder{}
	}
	return &Host{
		opts: o, log: o.Log, objects: newObjectStore(), hidden: newHiddenObjects(), plugins: newPlugins(o.Recorder),
		journal: journal{dir: o.JournalDirectory, log: o.Log}, notServingErr: errors.New("the NRI host has not started yet"),
	}
}

// Serve serves CRI calls on the listener until the listener closes. It serves plugins until Stop is called. It calls
// the function dial to connect to the CRI proxy. Serve may be called only once.
func (h *Host) Serve(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error)) error {
	conn, err := grpc.NewClient("passthrough:///trimtab", clientOptions(dial)...)
	if err != nil {
		return fmt.Errorf("connect the NRI host to the CRI proxy: %w", err)
	}
	h.runtimeConn, h.runtime = conn, cri.NewRuntimeServiceClient(conn)
	h.tryOpen(ctx)
	server := grpc.NewServer(h.serverOptions()...)
	h.mu.Lock()
	h.server = server
	stopCalled := h.stopCalled
	h.mu.Unlock()
	if stopCalled {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { h.pollEnded(ctx) })
	err = server.Serve(l)
	cancel()
	beside.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	return err
}

// Stop waits for running CRI calls, and then closes the connections of plugins. It waits at most forwardLimit for calls
// that the host only forwards. It waits at most interceptLimit for calls about which the host asks plugins (nriCalls).
func (h *Host) Stop(forwardLimit, interceptLimit time.Duration) {
	h.mu.Lock()
	server := h.server
	h.stopCalled = true
	h.mu.Unlock()
	if server != nil {
		h.drainCalls(server, forwardLimit, interceptLimit)
	}
	h.close(errors.New("the agent stops"))
	if h.runtimeConn != nil {
		_ = h.runtimeConn.Close()
	}
}

// drainCalls stops the server when the running calls have ended, or when the limit for them is reached.
func (h *Host) drainCalls(server *grpc.Server, forwardLimit, interceptLimit time.Duration) {
	begun, done := time.Now(), make(chan struct{})
	go func() { // ends with the server
		server.GracefulStop()
		close(done)
	}()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-done:
			return
		case <-poll.C:
			if waited := time.Since(begun); waited > interceptLimit || waited > forwardLimit && h.runningNRICalls.Load() == 0 {
				server.Stop()
			}
		}
	}
}

// pollEnded polls the runtime for containers that ended without a CRI call, until ctx ends. While the host does not
// serve plugins, pollEnded instead tries to start this.
func (h *Host) pollEnded(ctx context.Context) {
	for sleep.For(ctx, h.opts.PollInterval) {
		if !h.serving.Load() {
			h.openingMutex.Lock()
			h.tryOpen(ctx)
			h.openingMutex.Unlock()
			continue
		}
		if err := h.reportEnded(ctx); err != nil && ctx.Err() == nil {
			h.log.Debug("the agent cannot list the runtime's containers for NRI plugins", logkey.Err, err)
		}
	}
}

// tryOpen calls open, so that the host serves plugins. It stores the result, an error or nil, in notServingErr. It logs
// a success. It logs an error only if the error differs from the one that was stored before.
func (h *Host) tryOpen(ctx context.Context) {
	err := h.open(ctx)
	h.mu.Lock()
	isNew := err != nil && (h.notServingErr == nil || h.notServingErr.Error() != err.Error())
	h.notServingErr = err
	h.mu.Unlock()
	switch {
	case isNew:
		h.log.Error("the agent does not serve NRI plugins", logkey.Socket, h.opts.Socket, logkey.Err, err)
	case err == nil:
		h.log.Info("the agent serves NRI plugins", logkey.Socket, h.opts.Socket, logkey.Mode, h.creationOrder())
	}
}

// open starts to serve plugins. It takes the lock of the socket. It removes the pods and containers whose creation an
// earlier host did not finish. It reads the pods and containers of the runtime. Then it accepts plugins.
func (h *Host) open(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if h.pluginListener, err = newPluginListener(h.opts, h.plugins); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			h.pluginListener.close()
		}
	}()
	version, err := h.runtime.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return fmt.Errorf("read the runtime's version: %w", err)
	}
	h.specStore = h.openSpecStore(ctx)
	if err := h.removeUnanswered(ctx); err != nil {
		return err
	}
	if err := h.loadObjects(ctx); err != nil {
		return err
	}
	if h.nri, err = adaptation.New(version.RuntimeName, version.RuntimeVersion, h.synchronize, h.applyUnsolicited, h.adaptationOptions()...); err != nil {
		return fmt.Errorf("set up the NRI library: %w", err)
	}
	if h.opts.RegistrationTimeout > 0 {
		adaptation.SetPluginRegistrationTimeout(h.opts.RegistrationTimeout)
	}
	if h.opts.RequestTimeout > 0 {
		adaptation.SetPluginRequestTimeout(h.opts.RequestTimeout)
	}
	h.hasOwnPlugins = h.opts.hasOwnPlugins()
	if err := h.nri.Start(); err != nil {
		return fmt.Errorf("start the NRI library: %w", err)
	}
	if err := h.pluginListener.open(); err != nil {
		h.nri.Stop()
		return err
	}
	h.serving.Store(true)
	return nil
}

// openTimeout limits the time for one attempt to open the host.
const openTimeout = 20 * time.Second

// adaptationOptions returns the options of the NRI library.
func (h *Host) adaptationOptions() []adaptation.Option {
	o := []adaptation.Option{
		adaptation.WithPluginPath(h.opts.PluginPath), adaptation.WithPluginConfigPath(h.opts.PluginConfigPath),
		adaptation.WithSocketPath(h.pluginListener.innerPath()), adaptation.WithMetrics(h.plugins),
		adaptation.WithDefaultValidator(h.opts.Validator),
	}
	if h.opts.DisableConnections {
		o = append(o, adaptation.WithDisabledExternalConnections())
	}
	return o
}

// close stops serving plugins, and closes the connections of plugins. It does not change containers. The error reason
// says why the host does not serve plugins any more.
func (h *Host) close(reason error) {
	if !h.serving.Swap(false) {
		return
	}
	h.mu.Lock()
	h.notServingErr = reason
	h.mu.Unlock()
	h.pluginListener.stop()
	h.nri.Stop()
	h.pluginListener.close()
	if h.specStore != nil {
		h.specStore.close()
	}
}

// creationOrder describes for users whether the host asks plugins before or after the runtime creates a container.
func (h *Host) creationOrder() string {
	if h.specStore != nil {
		return "created, then adjusted"
	}
	return "adjusted, then created"
}

// privateDirectory returns the path of a directory beside a socket. Only root can enter this directory.
func privateDirectory(socket string) string { return filepath.Clean(socket) + ".d" }
