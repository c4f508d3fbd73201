package podspec

import (
	"context"
	"net"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// ResourceLister is a client of the kubelet's PodResources API (v1).
type ResourceLister struct{ kubeletSocket }

// NewResourceLister returns a client of the PodResources API at the socket path. It does not connect before the first
// call. The function dial opens the connection; if it is nil, gRPC opens the connection itself.
func NewResourceLister(path string, dial func(ctx context.Context, socket string) (net.Conn, error)) *ResourceLister {
	return &ResourceLister{newKubeletSocket(path, dial)}
}

// List requests the resources that the kubelet has assigned to all pods.
func (r *ResourceLister) List(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
	return ask(r, func(c podresources.PodResourcesListerClient) (*podresources.ListPodResourcesResponse, error) {
		return c.List(ctx, &podresources.ListPodResourcesRequest{})
	})
}

// Allocatable requests the resources that the kubelet can assign to containers.
func (r *ResourceLister) Allocatable(ctx context.Context) (*podresources.AllocatableResourcesResponse, error) {
	return ask(r, func(c podresources.PodResourcesListerClient) (*podresources.AllocatableResourcesResponse, error) {
		return c.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	})
}

// ask makes one call to the PodResources API.
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
