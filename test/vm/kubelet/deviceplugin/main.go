// Command deviceplugin is a device plugin of the kubelet for the tests. For each argument RESOURCE=NODE it has four
// devices of this resource on this NUMA node. It tries to register until the kubelet accepts the registration, and
// serves until it is killed.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// devices is the number of devices of each resource.
const devices = 4

// server serves one resource.
type server struct {
	plugin.UnimplementedDevicePluginServer

	resource string
	node     int64 // id of the NUMA node of the devices
}

func (*server) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

// ListAndWatch reports the devices once, because they never change.
func (s *server) ListAndWatch(_ *plugin.Empty, stream grpc.ServerStreamingServer[plugin.ListAndWatchResponse]) error {
	all := &plugin.ListAndWatchResponse{}
	for i := range devices {
		all.Devices = append(all.Devices, &plugin.Device{
			ID: fmt.Sprintf("%s-%d", path.Base(s.resource), i), Health: plugin.Healthy,
			Topology: &plugin.TopologyInfo{Nodes: []*plugin.NUMANode{{ID: s.node}}},
		})
	}
	if err := stream.Send(all); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate returns an environment variable for each container, with the ids of the container's devices.
func (s *server) Allocate(_ context.Context, request *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	answer := &plugin.AllocateResponse{}
	name := strings.ToUpper(path.Base(s.resource))
	for _, c := range request.GetContainerRequests() {
		answer.ContainerResponses = append(answer.ContainerResponses, &plugin.ContainerAllocateResponse{
			Envs: map[string]string{name: strings.Join(c.GetDevicesIds(), ",")},
		})
	}
	return answer, nil
}

// register registers the plugin's socket with the kubelet.
func (s *server) register(endpoint string) error {
	conn, err := grpc.NewClient("unix://"+plugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = plugin.NewRegistrationClient(conn).Register(ctx, &plugin.RegisterRequest{Version: plugin.Version, Endpoint: endpoint, ResourceName: s.resource})
	return err
}

// serve serves the devices of one argument RESOURCE=NODE.
func serve(arg string) error {
	resource, node, _ := strings.Cut(arg, "=")
	id, err := strconv.ParseInt(node, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not RESOURCE=NODE: %w", arg, err)
	}
	s := &server{resource: resource, node: id}
	endpoint := path.Base(resource) + ".sock"
	if err := os.MkdirAll(plugin.DevicePluginPath, 0o755); err != nil {
		return err
	}
	// The kubelet removes the sockets in its directory when it starts, so the plugin makes its socket after that.
	for {
		if _, err := os.Stat(plugin.KubeletSocket); err == nil {
			break
		}
		time.Sleep(200 * time.Millisecond) // the interval of polling
	}
	l, err := net.Listen("unix", plugin.DevicePluginPath+endpoint)
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	plugin.RegisterDevicePluginServer(g, s)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	for s.register(endpoint) != nil {
		time.Sleep(200 * time.Millisecond)
	}
	log.Printf("%s is registered", resource)
	return <-ended
}

func main() {
	ended := make(chan error)
	for _, arg := range os.Args[1:] {
		go func() { ended <- serve(arg) }()
	}
	log.Fatal(<-ended)
}
