package qrm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
	"github.com/trimtab/trimtab/internal/socket"
)

// maxRegistrationBytes limits a registration, in bytes.
const maxRegistrationBytes = 64 << 10

// registrationTimeout is the time that a registration may take, as in the kubelet.
const registrationTimeout = 10 * time.Second

// serve serves registrations until ctx ends. If it cannot serve the socket, it tries again later.
func (m *Manager) serve(ctx context.Context) {
	path := filepath.Join(m.opts.Directory, socketName)
	for {
		err := m.serveOnce(ctx, path)
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		news := err != nil && err.Error() != m.err
		if err != nil {
			m.err = err.Error()
		}
		m.mu.Unlock()
		if news {
			m.opts.Log.Error("resource plugins cannot register; the agent opens the socket again", logkey.Socket, path, logkey.Err, err)
		}
		if !sleep.For(ctx, reopenPause) {
			return
		}
	}
}

// serveOnce opens the socket and serves registrations until ctx ends, or until the socket file is removed.
func (m *Manager) serveOnce(ctx context.Context, path string) error {
	l, release, err := socket.Claim(ctx, socket.ServerSocket{Path: path, Mode: 0o600, Key: "resourcePlugins.directory", Program: "a manager of resource plugins"})
	if err != nil {
		return err
	}
	defer release()
	m.mu.Lock()
	m.err = ""
	m.mu.Unlock()
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxRegistrationBytes), grpc.MaxConcurrentStreams(maxPlugins))
	api.RegisterRegistrationServer(s, registrar{manager: m})
	defer context.AfterFunc(ctx, s.Stop)()
	watched, end := context.WithCancel(ctx)
	defer end()
	go func() {
		for sleep.For(watched, reopenPause) {
			if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
				m.opts.Log.Warn("the socket for resource plugins was removed; the agent opens it again", logkey.Socket, path)
				s.Stop()
				return
			}
		}
	}()
	return s.Serve(l)
}

// registrar serves the protocol's service Registration.
type registrar struct {
	api.UnimplementedRegistrationServer

	manager *Manager
}

// Register registers a plugin whose socket is in the manager's directory.
func (r registrar) Register(ctx context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	reg := registration{
		resource: req.GetResourceName(), version: req.GetVersion(),
		options: optionsOf(req.GetOptions()), hasOptions: req.GetOptions() != nil,
	}
	if reg.version == "" {
		reg.version = "none"
	}
	name := req.GetEndpoint()
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." || name == socketName {
		reg.socket = name
		err := fmt.Errorf("endpoint %q is not the name of a socket in the directory of plugins", shorten(name))
		r.manager.storeRefusal(reg, err)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	reg.socket = filepath.Join(r.manager.opts.Directory, name)
	if err := r.manager.register(ctx, reg); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &api.Empty{}, nil
}
