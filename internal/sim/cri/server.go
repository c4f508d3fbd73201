package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/socket"
)

// Options are the options of a server.
type Options struct {
	Socket string // the path of the socket at which the server listens
	// Version is the runtime version that the server reports. "" means the version of the runtime's Kind or, if the
	// Kind has none, "v2.1.0". As in containerd, the status of a container has resources only since 2.0, and version
	// 1.6 has no GetContainerEvents.
	Version string
	// Received is called with each request, before the server handles the request; nil for no call.
	Received func(method string, request any)
}

// Server is the CRI of one runtime.
type Server struct {
	cri.UnimplementedRuntimeServiceServer

	runtime        *sim.Runtime
	opts           Options
	server         *grpc.Server
	serveGoroutine sync.WaitGroup // waits for the goroutine that serves the CRI
	listCalls      atomic.Int64   // the number of calls of ListContainers
	updateCalls    atomic.Int64   // the number of calls of UpdateContainerResources

	mu            sync.Mutex                                // guards the fields below
	creationTimes map[string]int64                          // creation times in ns since 1970, by the id of the pod or container
	listeners     map[chan *cri.ContainerEventResponse]bool // the queues of the present calls of GetContainerEvents
}

// Serve serves the CRI of a runtime at a socket. The caller must close the server.
func Serve(r *sim.Runtime, o Options) (*Server, error) {
	if o.Version == "" {
		o.Version = cmp.Or(r.Kind().Version, "v2.1.0")
	}
	if err := os.Remove(o.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old CRI socket: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(o.Socket), 0o700); err != nil {
		return nil, fmt.Errorf("serve the CRI at the socket: %w", err)
	}
	l, err := socket.Listen(context.Background(), o.Socket, 0o600)
	if err != nil {
		return nil, fmt.Errorf("serve the CRI at the socket: %w", err)
	}
	f := &Server{runtime: r, opts: o, creationTimes: map[string]int64{}, listeners: map[chan *cri.ContainerEventResponse]bool{}}
	f.server = grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20), grpc.UnaryInterceptor(f.reportRequest))
	cri.RegisterRuntimeServiceServer(f.server, f)
	f.serveGoroutine.Go(func() { _ = f.server.Serve(l) }) // ends at Close
	return f, nil
}

// reportRequest passes each request to Options.Received.
func (f *Server) reportRequest(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if f.opts.Received != nil {
		f.opts.Received(info.FullMethod, request)
	}
	return handle(ctx, request)
}

// Close removes the socket and closes all connections, as when a runtime ends.
func (f *Server) Close() {
	f.server.Stop()
	f.serveGoroutine.Wait()
}

// ListCalls returns the number of calls of ListContainers so far.
func (f *Server) ListCalls() int64 { return f.listCalls.Load() }

// UpdateCalls returns the number of calls of UpdateContainerResources so far.
func (f *Server) UpdateCalls() int64 { return f.updateCalls.Load() }

// sendsEvents reports whether a runtime of this version has GetContainerEvents.
func (f *Server) sendsEvents() bool {
	return !strings.HasPrefix(strings.TrimPrefix(f.opts.Version, "v"), "1.6")
}

// statusHasResources reports whether a status that is not verbose has a container's resources.
func (f *Server) statusHasResources() bool {
	return f.runtimeName() != "containerd" || !strings.HasPrefix(strings.TrimPrefix(f.opts.Version, "v"), "1.")
}

// runtimeName returns the runtime's name.
func (f *Server) runtimeName() string { return cmp.Or(f.runtime.Kind().Name, "containerd") }

// setCreationTime stores the current time as the creation time of a pod or container.
func (f *Server) setCreationTime(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.creationTimes[id] = time.Now().UnixNano()
}

// createdAt returns the creation time of a pod or container in ns since 1970. If the object was not created over the
// CRI, its time is made from its number in the order of creation.
func (f *Server) createdAt(id string, number int) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, known := f.creationTimes[id]; known {
		return at
	}
	return int64(number) * int64(time.Second)
}

// Version reports the runtime's name and version.
func (f *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: f.runtimeName(), RuntimeVersion: f.opts.Version, RuntimeApiVersion: "v1"}, nil
}

// Status reports that the runtime is ready.
func (f *Server) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true},
	}}}, nil
}

// maxQueuedEvents is the number of events that may wait for a listener. As in containerd, further events are lost.
const maxQueuedEvents = 1000

// GetContainerEvents streams to the caller all events that happen after the call.
func (f *Server) GetContainerEvents(_ *cri.GetEventsRequest, to cri.RuntimeService_GetContainerEventsServer) error {
	if !f.sendsEvents() {
		return status.Error(codes.Unimplemented, "unknown method GetContainerEvents")
	}
	if f.runtimeName() == sim.CRIO.Name {
		return nil // CRI-O ends the stream at once, unless its option enable_pod_events is set
	}
	events := make(chan *cri.ContainerEventResponse, maxQueuedEvents)
	f.mu.Lock()
	f.listeners[events] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.listeners, events)
	}()
	for {
		select {
		case <-to.Context().Done():
			return nil
		case e := <-events:
			if err := to.Send(e); err != nil {
				return err
			}
		}
	}
}

// notify sends an event to all listeners.
func (f *Server) notify(kind cri.ContainerEventType, id string, p *sim.Sandbox) {
	e := &cri.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: f.podStatus(p),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.listeners {
		select {
		case l <- e:
		default: // the queue of the listener is full, so the listener does not get the event
		}
	}
}
