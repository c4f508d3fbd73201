package podresources

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// maxRequest is the largest request in bytes. A request has only a pod's name and namespace.
	maxRequest = 64 << 10
	// maxCalls is the largest number of simultaneous calls of one connection.
	maxCalls = 16
)

// Serve serves the API on a socket until ctx ends, and then removes the socket. The error is socket.ErrInUse if another
// process serves the socket.
func (s *Server) Serve(ctx context.Context, path string) error {
	l, release, err := socket.Claim(ctx, socket.ServerSocket{Path: path, Mode: 0o600, Key: "podResources.socket", Program: "process"})
	if err != nil {
		return fmt.Errorf("serve PodResources: %w", err)
	}
	defer release()
	return s.serve(ctx, l)
}

// serve serves the API on a listener until ctx ends.
func (s *Server) serve(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls), grpc.UnaryInterceptor(s.recoverPanic))
	v1.RegisterPodResourcesListerServer(server, s)
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve PodResources on %s: %w", l.Addr(), err)
	}
	return nil
}

// recoverPanic turns a panic in a call into an error of the call.
func (s *Server) recoverPanic(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("recovered from a panic in a PodResources call", logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			answer, err = nil, status.Error(codes.Internal, "the agent failed to answer: see the panic in the log of the agent")
		}
	}()
	return handle(ctx, req)
}
