// Command hookserver is an example of a hook server: a gRPC server that the node agent calls before a container is
// created or updated. For containers of pods with the label example.com/bursts: "yes", the server removes the CFS
// quota, halves the CPU shares, and sets an environment variable.
//
// hookserver SOCKET [REGISTRATION.json]
//
// The server stores nothing, because each request contains all data of the container that the caller knows.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
)

// label is the label by which pods request this policy. Its value must be "yes".
const label = "example.com/bursts"

// policy implements the server, with the two hooks PreCreateContainer and PreUpdateContainerResources. It answers
// Unimplemented to the other hooks of the protocol. Its registration file does not list these hooks, so no agent calls
// them.
type policy struct {
	hooks.UnimplementedRuntimeHookServiceServer
}

// PreCreateContainerHook is called before a container is created. The response has the container's new resources and
// variables.
func (policy) PreCreateContainerHook(_ context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	if r.GetPodLabels()[label] != "yes" {
		return &hooks.ContainerResourceHookResponse{}, nil // nothing changes
	}
	// Start from the values in the request. The caller takes a missing oom_score_adj for 0, and removes variables that
	// are missing in the response.
	resources, envs := r.GetContainerResources(), r.GetContainerEnvs()
	if resources == nil {
		resources = &hooks.LinuxContainerResources{}
	}
	if envs == nil {
		envs = map[string]string{}
	}
	resources.CpuQuota = -1 // no limit
	resources.CpuShares = max(resources.CpuShares/2, 2)
	envs["BURSTS"] = "yes"
	return &hooks.ContainerResourceHookResponse{ContainerResources: resources, ContainerEnvs: envs}, nil
}

// PreUpdateContainerResourcesHook is called before a running container gets other resources.
func (p policy) PreUpdateContainerResourcesHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	if r.GetPodLabels()[label] != "yes" || r.GetContainerResources() == nil {
		return &hooks.ContainerResourceHookResponse{}, nil
	}
	r.ContainerResources.CpuQuota = -1
	return &hooks.ContainerResourceHookResponse{ContainerResources: r.ContainerResources}, nil
}

// registration is the content of the file in which callers find the server's socket. Ignore means that containers are
// created without the server's changes if the server does not answer.
const registration = `{
	"remote-endpoint": %q,
	"failure-policy": "Ignore",
	"runtime-hooks": ["PreCreateContainer", "PreUpdateContainerResources"]
}
`

// register writes the registration file in one step, because a caller must not read a half-written file.
func register(file, socket string) error {
	tmp := filepath.Join(filepath.Dir(file), ".hookserver.tmp")
	if err := os.WriteFile(tmp, fmt.Appendf(nil, registration, socket), 0o644); err != nil { //nolint:gosec // proxies of other users read it
		return err
	}
	return os.Rename(tmp, file)
}

// serve answers calls until ctx ends.
func serve(ctx context.Context, socket, file string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) { // the socket of an earlier run
		return err
	}
	// bind creates the socket file with the mode of the socket. Set the mode before bind, so that at no time another
	// user can connect.
	conf := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		err := c.Control(func(fd uintptr) { chmod = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmod)
	}}
	l, err := conf.Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	hooks.RegisterRuntimeHookServiceServer(server, policy{})
	stop := context.AfterFunc(ctx, server.GracefulStop)
	defer stop()
	if file != "" {
		if err := register(file, socket); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	return server.Serve(l)
}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		log.Fatal("usage: hookserver SOCKET [REGISTRATION.json]")
	}
	file := ""
	if len(os.Args) == 3 {
		file = os.Args[2]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, os.Args[1], file)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}
