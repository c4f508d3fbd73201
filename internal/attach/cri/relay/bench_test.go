package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri/relay"
)

func listen(t testing.TB) (net.Listener, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "l.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, path
}

// forwardBytes is the least a proxy can do: it copies bytes.
func forwardBytes(t testing.TB, to string) string {
	t.Helper()
	l, path := listen(t)
	copyOver := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("unix", to)
			if err != nil {
				_ = a.Close()
				return
			}
			go copyOver(a, b)
			go copyOver(b, a)
		}
	}()
	return path
}

// passThrough is what gRPC's own library makes of a proxy that decodes nothing.
func passThrough(t testing.TB, to string) string {
	t.Helper()
	l, path := listen(t)
	up := dial(t, to)
	srv := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(big), grpc.MaxSendMsgSize(big),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return passOne(up, s) }))
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	return path
}

func passOne(up *grpc.ClientConn, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	md, _ := metadata.FromIncomingContext(s.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(s.Context(), md))
	defer cancel()
	c, err := up.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var m []byte
			if s.RecvMsg(&m) != nil {
				_ = c.CloseSend()
				return
			}
			if c.SendMsg(&m) != nil {
				return
			}
		}
	}()
	for {
		var m []byte
		if err := c.RecvMsg(&m); errors.Is(err, io.EOF) {
			s.SetTrailer(c.Trailer())
			return nil
		} else if err != nil {
			return err
		}
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
}

// answers are what the backend in memory says.
func answers(t testing.TB) map[string][]byte {
	t.Helper()
	list := &cri.ListContainersResponse{}
	for i := range 500 {
		list.Containers = append(list.Containers, &cri.Container{
			Id: fmt.Sprintf("%064x", i), PodSandboxId: fmt.Sprintf("%064x", i), Metadata: &cri.ContainerMetadata{Name: "app"},
			Image: &cri.ImageSpec{Image: "registry.example/shop/app:1.2.3"}, State: cri.ContainerState_CONTAINER_RUNNING,
			Labels: map[string]string{
				"io.kubernetes.container.name": "app", "io.kubernetes.pod.name": "web-0",
				"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": fmt.Sprintf("%036x", i),
			},
			Annotations: map[string]string{"io.kubernetes.container.hash": "8a9b", "io.kubernetes.container.restartCount": "0"},
		})
	}
	out := map[string][]byte{}
	for name, m := range map[string]proto.Message{
		"Version":         &cri.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "2.4.0", RuntimeApiVersion: "v1"},
		"CreateContainer": &cri.CreateContainerResponse{ContainerId: strings.Repeat("c", 64)},
		"ListContainers":  list,
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = b
	}
	return out
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// way is one way from a caller to the backend, and what was measured of it.
type way struct {
	name, path   string
	medians, cpu []time.Duration
}

// TestRatios measures the ways between a caller and one backend in memory, in
// one run, and prints medians and processor times as ratios to the direct way,
// which is measured twice: the second shows the noise. Processor times are of
// caller, backend and proxy together. It needs some seconds of a quiet machine
// and runs with TRIMTAB_BENCH=1.
func TestRatios(t *testing.T) {
	if os.Getenv("TRIMTAB_BENCH") == "" {
		t.Skip("a measurement: set TRIMTAB_BENCH=1")
	}
	known := answers(t)
	l, path := listen(t)
	srv := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		return s.SendMsg(new(known[method[strings.LastIndexByte(method, '/')+1:]]))
	}))
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)

	hold := picking("CreateContainer", func(context.Context, []byte) relay.Verdict { return relay.Verdict{} })
	messages := map[string][]byte{"Version": {}, "ListContainers": {}, "CreateContainer": some(6000)}
	ways := []*way{
		{name: "direct", path: path},
		{name: "direct again", path: path},
		{name: "bytes", path: forwardBytes(t, path)},
		{name: "grpc-go", path: passThrough(t, path)},
		{name: "trimtab", path: startProxy(t, path, relay.Options{Pick: hold}).path},
	}
	for _, method := range []string{"Version", "ListContainers", "CreateContainer"} {
		for _, callers := range []int{1, 8} {
			for _, w := range ways {
				w.medians, w.cpu = nil, nil
			}
			for range 5 { // interleaved: what disturbs one disturbs all
				for _, w := range ways {
					w.measure(t, method, messages[method], callers)
				}
			}
			line := fmt.Sprintf("%-15s %d callers: p50 %v;", method, callers, median(ways[0].medians).Round(time.Microsecond))
			for _, w := range ways[1:] {
				line += fmt.Sprintf("  %s %.2f (cpu %.2f)", w.name, ratio(w.medians, ways[0].medians), ratio(w.cpu, ways[0].cpu))
			}
			t.Log(line)
		}
	}
}

func median(d []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[len(s)/2]
}

func ratio(a, b []time.Duration) float64 { return float64(median(a)) / float64(median(b)) }

func (w *way) measure(t testing.TB, method string, msg []byte, callers int) {
	t.Helper()
	const each = 200
	c := dial(t, w.path)
	took := make([][]time.Duration, callers)
	call := func(i int) {
		start := time.Now()
		var out []byte
		if err := c.Invoke(context.Background(), "/runtime.v1.RuntimeService/"+method, &msg, &out); err != nil {
			t.Error(err)
		}
		took[i] = append(took[i], time.Since(start))
	}
	for range 30 {
		call(0)
	}
	took[0] = nil
	before := cpuTime()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range each {
				call(i)
			}
		})
	}
	all.Wait()
	w.cpu = append(w.cpu, (cpuTime()-before)/time.Duration(each*callers))
	w.medians = append(w.medians, median(slices.Concat(took...)))
	_ = c.Close()
}
