package podspec

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// ResourceLister passes on what the kubelet's PodResources API (v1) answers.
type ResourceLister struct {
	socket string
	conn   func() (*grpc.ClientConn, error) // returns the one connection, made at the first call
}

// NewResourceLister returns a client of the socket. It does not connect yet. dial connects; nil for
// the system's call.
func NewResourceLister(path string, dial func(ctx context.Context, socket string) (net.Conn, error)) *ResourceLister {
	return &ResourceLister{path, sync.OnceValues(func() (*grpc.ClientConn, error) { return connect(path, dial) })}
}

// List asks for the resources of all pods.
func (r *ResourceLister) List(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
	return ask(r, func(c podresources.PodResourcesListerClient) (*podresources.ListPodResourcesResponse, error) {
		return c.List(ctx, &podresources.ListPodResourcesRequest{})
	})
}

// Allocatable asks for what the kubelet can give containers.
func (r *ResourceLister) Allocatable(ctx context.Context) (*podresources.AllocatableResourcesResponse, error) {
	return ask(r, func(c podresources.PodResourcesListerClient) (*podresources.AllocatableResourcesResponse, error) {
		return c.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	})
}

// ask makes one call.
func ask[T any](r *ResourceLister, call func(podresources.PodResourcesListerClient) (T, error)) (out T, err error) {
	conn, err := r.conn()
	if err != nil {
		return out, err
	}
	if out, err = call(podresources.NewPodResourcesListerClient(conn)); err != nil {
		return out, connectionError(err, r.socket, "every kubelet has this socket")
	}
	return out, nil
}

// Close ends the connection.
func (r *ResourceLister) Close() error {
	conn, err := r.conn()
	if err != nil {
		return nil //nolint:nilerr // there is none to close
	}
	return conn.Close()
}
