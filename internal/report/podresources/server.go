package podresources

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// kubeletTimeout is how long the kubelet may take for an answer.
	kubeletTimeout = time.Second
	// kubeletPause is how long the server uses an answer of the kubelet again. With this pause, many clients do not
	// exceed the limit of the kubelet's PodResources API (100 questions a second).
	kubeletPause = 100 * time.Millisecond
	// kubeletRetry is the pause after a question that failed.
	kubeletRetry = time.Second
)

// Kubelet is the kubelet's PodResources API.
type Kubelet interface {
	List(ctx context.Context) (*v1.ListPodResourcesResponse, error)
	Allocatable(ctx context.Context) (*v1.AllocatableResourcesResponse, error)
}

// Server answers the PodResources API. New makes one.
type Server struct {
	v1.UnimplementedPodResourcesListerServer

	node        func() nodeview.Holdings
	plugins     Plugins
	log         *slog.Logger
	pods        source[*v1.ListPodResourcesResponse]
	allocatable source[*v1.AllocatableResourcesResponse]
}

// New returns a server. node reads what containers own. kubelet has their devices, and plugins what
// resource plugins allocated; both may be nil.
func New(node func() nodeview.Holdings, kubelet Kubelet, plugins Plugins, log *slog.Logger) *Server {
	s := &Server{node: node, plugins: plugins, log: log}
	if kubelet != nil {
		s.pods.ask, s.allocatable.ask = kubelet.List, kubelet.Allocatable
	}
	s.pods.turn, s.allocatable.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	return s
}

// List returns the resources of all pods.
func (s *Server) List(ctx context.Context, _ *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	pods, err := s.merged(ctx)
	if err != nil {
		return nil, err
	}
	return &v1.ListPodResourcesResponse{PodResources: pods}, nil
}

// Get returns the resources of a pod.
func (s *Server) Get(ctx context.Context, r *v1.GetPodResourcesRequest) (*v1.GetPodResourcesResponse, error) {
	pods, err := s.merged(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if p.GetNamespace() == r.GetPodNamespace() && p.GetName() == r.GetPodName() {
			return &v1.GetPodResourcesResponse{PodResources: p}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod %.80q in namespace %.80q not found", r.GetPodName(), r.GetPodNamespace())
}

// GetAllocatableResources returns what containers can get: CPUs and memory of the node from the agent, and devices
// from the kubelet.
func (s *Server) GetAllocatableResources(ctx context.Context, _ *v1.AllocatableResourcesRequest) (*v1.AllocatableResourcesResponse, error) {
	h, err := s.holdings()
	if err != nil {
		return nil, err
	}
	answer, _, err := s.allocatable.get(ctx, s.log)
	if err != nil {
		return nil, err
	}
	out := &v1.AllocatableResourcesResponse{Devices: answer.GetDevices(), CpuIds: ids(h.CPUs), Memory: memory(h.Memory)}
	if s.plugins != nil {
		if all := s.plugins.Allocatable(ctx); len(all) > 0 {
			out.ProtoReflect().SetUnknown(appendAllocatable(nil, all))
		}
	}
	return out, nil
}

func (s *Server) holdings() (nodeview.Holdings, error) {
	h := s.node()
	if !h.Synced {
		return h, status.Error(codes.Unavailable, "the agent has not read the runtime's list of containers yet")
	}
	return h, nil
}

func (s *Server) merged(ctx context.Context) ([]*v1.PodResources, error) {
	answer, fresh, err := s.pods.get(ctx, s.log)
	if err != nil {
		return nil, err
	}
	h, err := s.holdings() // after the question, because that takes time
	if err != nil {
		return nil, err
	}
	kubelet := answer.GetPodResources()
	if !fresh {
		kubelet = onlyDevices(kubelet, h.Pods)
	}
	return merge(h.Pods, kubelet, s.plugins), nil
}

// source has the last answer of the kubelet to one question.
type source[T any] struct {
	ask  func(ctx context.Context) (T, error) // nil for no kubelet
	turn chan struct{}                        // a lock; guards all below
	last T
	at   time.Time // of the last question
	err  error     // of the last question
}

// get returns the kubelet's answer. fresh means that the answer is new. Otherwise it is the last answer that the
// kubelet gave. The error is that of ctx.
func (s *source[T]) get(ctx context.Context, log *slog.Logger) (answer T, fresh bool, err error) {
	if s.ask == nil {
		return answer, true, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return answer, false, status.FromContextError(ctx.Err()).Err()
	}
	pause := kubeletPause
	if s.err != nil {
		pause = kubeletRetry
	}
	if !s.at.IsZero() && time.Since(s.at) < pause {
		return s.last, s.err == nil, nil
	}
	// The answer is for other clients, too, so it does not end with this one.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), kubeletTimeout)
	defer cancel()
	now, err := s.ask(limited)
	switch {
	case err == nil && s.err != nil:
		log.Info("the kubelet reports devices again")
	case err != nil && s.err == nil:
		log.Warn("the kubelet does not report devices; PodResources answers have its last ones", logkey.Err, err)
	}
	if err == nil {
		s.last = now
	}
	s.err, s.at = err, time.Now()
	return s.last, err == nil, nil
}
