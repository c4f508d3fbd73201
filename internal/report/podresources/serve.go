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
	// maxRequest bounds a request in bytes. A request has only the names of a pod.
	maxRequest = 64 << 10
	// maxCalls bounds how many calls one connection may have at the same time.
	maxCalls = 16
)

// Serve answers on a socket until ctx ends, and removes it. The error is socket.ErrInUse if another
// process serves it.
func (s *Server) Serve(ctx context.Context, path string) error {
	l, release, err := socket.Claim(ctx, socket.Place{Path: path, Mode: 0o600, Key: "podResources.socket", By: "process"})
	if err != nil {
		return fmt.Errorf("serve PodResources: %w", err)
	}
	defer release()
	return s.serve(ctx, l)
}

func (s *Server) serve(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls), grpc.UnaryInterceptor(s.contain))
	v1.RegisterPodResourcesListerServer(server, s)
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve PodResources on %s: %w", l.Addr(), err)
	}
	return nil
}

// contain turns a panic into an error of the call.
func (s *Server) contain(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("a PodResources answer failed", logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			answer, err = nil, status.Error(codes.Internal, "the agent failed; see its log")
		}
	}()
	return handle(ctx, req)
}
