package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/attach/relay"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// The environment variables of a proxy process between caller and backend.
const (
	wayVar     = "TRIMTAB_BENCH_WAY"
	listenVar  = "TRIMTAB_BENCH_LISTEN"
	backendVar = "TRIMTAB_BENCH_BACKEND"
	hooksVar   = "TRIMTAB_BENCH_HOOKS" // the directory of hook servers
)

// The ways from a caller to the backend. Direct is measured twice, and the difference of the two is noise.
const (
	direct      = "direct"
	directAgain = "direct again"
	forwarded   = "raw Go forwarder"
	passed      = "grpc-go pass-through"
	proxied     = "trimtab"
	hooked      = "trimtab with a hook server"
	// earlier marks the ways through the agent of an older build.
	earlier = ", before"
)

// agentBetween reports whether a way is through an agent.
func agentBetween(way string) bool { return way == proxied || way == hooked }

// between runs such a process. It ends with its standard input.
func between(way string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		if agentBetween(way) {
			writeHeap()
		}
		cancel()
	}()
	if agentBetween(way) {
		return profiled(func() error { return runProxy(ctx) })
	}
	l, err := net.Listen("unix", os.Getenv(listenVar))
	if err != nil {
		return err
	}
	go func() { <-ctx.Done(); _ = l.Close() }()
	if way == forwarded {
		return forward(l, os.Getenv(backendVar))
	}
	return passThrough(l, os.Getenv(backendVar))
}

// forward is the simplest proxy: it copies bytes.
func forward(l net.Listener, to string) error {
	over := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}
	for {
		a, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := net.Dial("unix", to)
		if err != nil {
			return err
		}
		go over(a, b)
		go over(b, a)
	}
}

// raw is a codec whose messages are bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Name() string                  { return "proto" }

func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}

func dialRaw(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(relay.DefaultMaxMessage)))
}

// passThrough is a proxy with grpc-go that decodes no message.
func passThrough(l net.Listener, to string) error {
	up, err := dialRaw(to)
	if err != nil {
		return err
	}
	srv := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(relay.DefaultMaxMessage),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return passOne(up, s) }))
	_ = srv.Serve(l) // until it is closed
	return nil
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

// runProxy runs the agent like a node, between caller and backend, with a described machine and plain files as cgroups.
func runProxy(ctx context.Context) error {
	m, err := describe.Parse(machine)
	if err != nil {
		return err
	}
	root, err := cgroup.OpenRoot(os.Getenv(treeVar))
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	c := config.Default()
	c.Attach, c.CRI.Socket, c.CRI.Endpoint = "cri", os.Getenv(listenVar), "unix://"+os.Getenv(backendVar)
	if dir := os.Getenv(hooksVar); dir != "" {
		c.HookServers.Directory = dir
	}
	c.Paths.StatusSocket, c.Paths.State, c.Paths.Key = "", os.Getenv(stateVar), os.Getenv(stateVar)+"/key"
	a, err := agent.New(agent.Options{
		Config: c, Machine: m, Log: slog.New(slog.NewTextHandler(null, nil)),
		Tree: &cgroup.Tree{FS: plainFiles{root}, Version: cgroup.V2},
	})
	if err != nil {
		return err
	}
	return a.RunAlone(ctx)
}

// way is one way to the backend, through a process or direct.
type way struct {
	name  string
	conn  *grpc.ClientConn
	child *exec.Cmd

	p50 sample // the medians of its rounds
	cpu sample // CPU time of the process per call, by round
}

// openWay starts the process of a way and connects through it.
func openWay(b *testing.B, name, backend string, t tree) *way {
	b.Helper()
	w, path := &way{name: name}, backend
	if name != direct && name != directAgain {
		path = filepath.Join(b.TempDir(), "s")
		w.start(b, path, backend, t)
	}
	var err error
	if w.conn, err = dialRaw(path); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.conn.Close() })
	return w
}

func (w *way) start(b *testing.B, path, backend string, t tree) {
	b.Helper()
	program := os.Args[0]
	role, old := strings.CutSuffix(w.name, earlier)
	if old {
		program = *before
	}
	if agentBetween(role) {
		// Only one agent works on a node: it locks the directory of the runtime's socket.
		link := filepath.Join(b.TempDir(), "r")
		if err := os.Symlink(backend, link); err != nil {
			b.Fatal(err)
		}
		backend = link
	}
	w.child = exec.Command(program) // ends with its standard input
	w.child.Env = append(os.Environ(), wayVar+"="+role, listenVar+"="+path, backendVar+"="+backend, treeVar+"="+string(t), stateVar+"="+b.TempDir())
	if role == hooked {
		w.child.Env = append(w.child.Env, hooksVar+"="+openHookServer(b))
	}
	w.child.Stderr = os.Stderr
	stop, err := w.child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := w.child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = stop.Close()
		late := time.AfterFunc(20*time.Second, func() { _ = w.child.Process.Kill() })
		defer late.Stop()
		_ = w.child.Wait()
	})
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			b.Fatalf("%s does not serve: %v", w.name, err)
		}
	}
}

// used returns the CPU time of all threads of the process; 0 without one.
func (w *way) used(b *testing.B) time.Duration {
	b.Helper()
	if w.child == nil {
		return 0
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", w.child.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	var sum time.Duration
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}
