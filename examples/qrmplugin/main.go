// Command qrmplugin is an example of a QoS resource plugin (API resourceplugin.v1alpha1). A manager calls such a plugin:
// Katalyst's kubelet or Trimtab. The plugin allocates network interfaces, each of which is near one NUMA node. Usage:
//
//	qrmplugin -dir /var/lib/trimtab/resource-plugins -state /var/lib/qrmplugin.json -nics eth1@0,eth2@1
//	[flags]
//
// A container that requests N of the resource example.com/nic gets N interfaces. The plugin returns their names in the
// variable NICS and in an annotation. With -mount and -device, the container also gets a mount and a device. The plugin
// stores the allocations in a file, so that it allocates no interface twice after a restart.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registry "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
)

const (
	// version is the version of the plugin API.
	version = "v1alpha1"
	// socketCheckInterval is the pause between two checks whether the manager has created its own socket again.
	socketCheckInterval = 200 * time.Millisecond
	// registerTimeout is the time limit of a registration.
	registerTimeout = 10 * time.Second
)

// settings are the values of the flags.
type settings struct {
	dir              string // the manager's directory: the plugin registers at the socket kubelet.sock in it
	watchedDirectory string // a directory that a manager watches for plugins; replaces dir
	socket           string // the name of the plugin's own socket
	resource         string // the name of the resource that the plugin allocates
	state            string // the path of the file with the allocations; "" to store none
	nics             []nic  // the interfaces that the plugin allocates
	mount            string // HOST:CONTAINER, mounted read-only
	device           string // the path of a device that each container gets
}

func main() {
	var s settings
	flag.StringVar(&s.dir, "dir", "", "the manager's directory, with kubelet.sock")
	flag.StringVar(&s.watchedDirectory, "watched", "", "a directory that a manager watches, instead of -dir")
	flag.StringVar(&s.socket, "socket", "qrmplugin.sock", "the name of the plugin's socket in the directory of -dir or -watched")
	flag.StringVar(&s.resource, "resource", "example.com/nic", "the name of the resource")
	flag.StringVar(&s.state, "state", "", "the file in which the plugin stores its allocations")
	nics := flag.String("nics", "", "interfaces, each with its NUMA node: eth1@0,eth2@1")
	flag.StringVar(&s.mount, "mount", "", "a path of the host to mount read-only into containers, and the path in them: HOST:CONTAINER")
	flag.StringVar(&s.device, "device", "", "the path of a device that each container with interfaces gets")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if s.nics, err = parseNICs(*nics); err == nil {
		err = run(ctx, s)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// parseNICs reads a list like eth1@0,eth2@1.
func parseNICs(text string) ([]nic, error) {
	var out []nic
	for part := range strings.SplitSeq(text, ",") {
		name, node, found := strings.Cut(part, "@")
		n, err := strconv.ParseUint(node, 10, 16)
		if !found || name == "" || err != nil {
			return nil, fmt.Errorf("interface %q: want NAME@NODE", part)
		}
		out = append(out, nic{name, n})
	}
	return out, nil
}

// run serves the plugin's API until ctx ends.
func run(ctx context.Context, s settings) error {
	dir := s.dir
	if s.watchedDirectory != "" {
		dir = s.watchedDirectory
	}
	if dir == "" {
		return errors.New("set -dir or -watched")
	}
	p, err := newPlugin(s)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, s.socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier run: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen on the socket of the plugin: %w", err)
	}
	server := grpc.NewServer()
	api.RegisterResourcePluginServer(server, p)
	registry.RegisterRegistrationServer(server, watchedRegistration{name: s.resource})
	defer context.AfterFunc(ctx, server.Stop)()
	if s.dir != "" {
		go keepRegistered(ctx, s, p)
	}
	return server.Serve(l)
}

// watchedRegistration is the registration service for a manager that found the plugin's socket in a watched directory.
type watchedRegistration struct {
	registry.UnimplementedRegistrationServer

	name string // the name of the resource
}

// GetInfo returns the identity of this plugin.
func (w watchedRegistration) GetInfo(context.Context, *registry.InfoRequest) (*registry.PluginInfo, error) {
	return &registry.PluginInfo{Type: "ResourcePlugin", Name: w.name, SupportedVersions: []string{version}}, nil
}

// NotifyRegistrationStatus receives the result of the registration.
func (watchedRegistration) NotifyRegistrationStatus(_ context.Context, s *registry.RegistrationStatus) (*registry.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		log.Printf("the manager refused to register the plugin: %s", s.GetError())
	}
	return &registry.RegistrationStatusResponse{}, nil
}

// keepRegistered registers the plugin at the manager until ctx ends. It registers again whenever the manager has
// created a new socket.
func keepRegistered(ctx context.Context, s settings, p *plugin) {
	path := filepath.Join(s.dir, "kubelet.sock")
	var at os.FileInfo
	tick := time.NewTicker(socketCheckInterval)
	defer tick.Stop()
	for {
		now, err := os.Stat(path)
		if err == nil && (at == nil || !os.SameFile(at, now) || !at.ModTime().Equal(now.ModTime())) {
			if err = register(ctx, path, s, p); err == nil {
				at = now
			} else {
				log.Printf("register the plugin at its manager: %v", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// register registers the plugin at the manager whose socket is at path.
func register(ctx context.Context, path string, s settings, p *plugin) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: version, Endpoint: s.socket, ResourceName: s.resource, Options: p.options(),
	})
	return err
}
