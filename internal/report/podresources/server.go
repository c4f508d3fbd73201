package podresources

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// kubeletTimeout is how long the kubelet may take to answer.
	kubeletTimeout = time.Second
	// cacheTime is how long the server reuses an answer of the kubelet. With any number of clients, the server therefore
	// stays below the rate limit of the kubelet's PodResources API (100 requests per second).
	cacheTime = 100 * time.Millisecond
	// retryPause is how long the server waits after a failed request to the kubelet before it sends the next one.
	retryPause = time.Second
)

// Kubelet is the kubelet's PodResources API.
type Kubelet interface {
	// List returns the resources of all pods. Allocatable returns what the node can allocate to containers.
	List(ctx context.Context) (*v1.ListPodResourcesResponse, error)
	Allocatable(ctx context.Context) (*v1.AllocatableResourcesResponse, error)
}

// Server implements the PodResources API. New returns a Server.
type Server struct {
	v1.UnimplementedPodResourcesListerServer

	readHoldings func() nodeview.Holdings
	plugins      Plugins
	log          *slog.Logger
	pods         cachedAnswer[*v1.ListPodResourcesResponse]
	allocatable  cachedAnswer[*v1.AllocatableResourcesResponse]
}

// New returns a server. readHoldings returns what the agent assigned to containers. kubelet reports the devices of
// containers, and plugins reports what resource plugins allocated. kubelet and plugins may be nil.
func New(readHoldings func() nodeview.Holdings, kubelet Kubelet, plugins Plugins, log *slog.Logger) *Server {
	s := &Server{readHoldings: readHoldings, plugins: plugins, log: log}
	if kubelet != nil {
		s.pods.ask, s.allocatable.ask = kubelet.List, kubelet.Allocatable
	}
	s.pods.lock, s.allocatable.lock = semaphore.NewWeighted(1), semaphore.NewWeighted(1)
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

// GetAllocatableResources returns what the node can allocate to containers. CPUs, memory and CDI devices come from the
// agent, other devices from the kubelet, and the resources in Katalyst's field from the resource plugins.
func (s *Server) GetAllocatableResources(ctx context.Context, _ *v1.AllocatableResourcesRequest) (*v1.AllocatableResourcesResponse, error) {
	h, err := s.holdings()
	if err != nil {
		return nil, err
	}
	answer, _, err := s.allocatable.get(ctx, s.log)
	if err != nil {
		return nil, err
	}
	out := &v1.AllocatableResourcesResponse{Devices: append(slices.Clip(answer.GetDevices()), containerDevices(h.Devices)...), CpuIds: int64IDs(h.CPUs), Memory: containerMemory(h.Memory)}
	if s.plugins != nil {
		if all := s.plugins.Allocatable(ctx); len(all) > 0 {
			out.ProtoReflect().SetUnknown(nodeFields.encode(all))
		}
	}
	return out, nil
}

// holdings returns what the agent assigned to containers. It returns an error until the agent has read the runtime's
// list of containers.
func (s *Server) holdings() (nodeview.Holdings, error) {
	h := s.readHoldings()
	if !h.Synced {
		return h, status.Error(codes.Unavailable, "the agent has not read the runtime's list of containers yet")
	}
	return h, nil
}

// merged returns the resources of all pods, from the agent's state and the kubelet's answer.
func (s *Server) merged(ctx context.Context) ([]*v1.PodResources, error) {
	answer, fresh, err := s.pods.get(ctx, s.log)
	if err != nil {
		return nil, err
	}
	h, err := s.holdings() // after the request to the kubelet, because the request takes time
	if err != nil {
		return nil, err
	}
	kubelet := answer.GetPodResources()
	if !fresh {
		kubelet = onlyDevices(kubelet, h.Pods)
	}
	return merge(h.Pods, kubelet, s.plugins), nil
}

// cachedAnswer has the kubelet's last answer to a request.
type cachedAnswer[T any] struct {
	ask            func(ctx context.Context) (T, error) // requests an answer from the kubelet; nil without a kubelet
	lock           *semaphore.Weighted                  // guards the fields below
	answer         T                                    // the last answer without an error
	requestEndedAt time.Time                            // when the last request ended
	err            error                                // the error of the last request
}

// get returns the kubelet's answer. If the last request failed, it returns the last good answer, and fresh is false.
// It returns an error only if ctx ends.
func (s *cachedAnswer[T]) get(ctx context.Context, log *slog.Logger) (answer T, fresh bool, err error) {
	if s.ask == nil {
		return answer, true, nil
	}
	if err := s.lock.Acquire(ctx, 1); err != nil {
		return answer, false, status.FromContextError(err).Err()
	}
	defer s.lock.Release(1)
	pause := cacheTime
	if s.err != nil {
		pause = retryPause
	}
	if !s.requestEndedAt.IsZero() && time.Since(s.requestEndedAt) < pause {
		return s.answer, s.err == nil, nil
	}
	// Other clients also use the answer, so the request continues if this client disconnects.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), kubeletTimeout)
	defer cancel()
	now, err := s.ask(limited)
	switch {
	case err == nil && s.err != nil:
		log.Info("the kubelet reports devices again")
	case err != nil && s.err == nil:
		log.Warn("the kubelet does not report devices; PodResources answers have the last reported devices", logkey.Err, err)
	}
	if err == nil {
		s.answer = now
	}
	s.err, s.requestEndedAt = err, time.Now()
	return s.answer, err == nil, nil
}
