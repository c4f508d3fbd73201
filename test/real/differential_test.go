package real_test

import (
	"context"
	wire "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// a16MiB is the kubelet's limit for one message.
const a16MiB = 16 << 20

// way is one way to the runtime: direct, or through the proxy.
type way struct {
	t      *testing.T
	c      *real.Containerd
	socket string
	conn   *grpc.ClientConn
	real.Client

	pod real.PodID
	ctr real.ContainerID // runs in it
}

func wayTo(t *testing.T, c *real.Containerd, socket string) way {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(a16MiB), grpc.MaxCallSendMsgSize(2*a16MiB)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return way{t: t, c: c, socket: socket, conn: conn, Client: real.Client{RuntimeServiceClient: cri.NewRuntimeServiceClient(conn), ImageServiceClient: cri.NewImageServiceClient(conn)}}
}

func (w way) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patiently)
	w.t.Cleanup(cancel)
	return ctx
}

// execID matches the runtime's id of one exec.
var execID = regexp.MustCompile(`exec "[0-9a-f]{64}"`)

// answerText returns everything that a caller sees of an answer.
func answerText(m proto.Message, err error) string {
	if err == nil {
		return fmt.Sprint(m)
	}
	st := status.Convert(err)
	return fmt.Sprintf("%v %q %v", st.Code(), execID.ReplaceAllString(st.Message(), "exec ID"), st.Proto().GetDetails())
}

// same has calls whose answers must be the same direct and proxied.
var differential = []struct {
	name string
	make func(w way) string
}{
	{"version", func(w way) string { return answerText(w.Version(w.ctx(), &cri.VersionRequest{Version: "v1"})) }},
	{"runtime config", func(w way) string { return answerText(w.RuntimeConfig(w.ctx(), &cri.RuntimeConfigRequest{})) }},
	{"lists", func(w way) string {
		return answerText(w.ListPodSandbox(w.ctx(), &cri.ListPodSandboxRequest{})) + answerText(w.ListContainers(w.ctx(), &cri.ListContainersRequest{}))
	}},
	{"statuses", func(w way) string {
		return answerText(w.PodSandboxStatus(w.ctx(), &cri.PodSandboxStatusRequest{PodSandboxId: string(w.pod), Verbose: true})) +
			answerText(w.ContainerStatus(w.ctx(), &cri.ContainerStatusRequest{ContainerId: string(w.ctr), Verbose: true}))
	}},
	{"exec and wait", func(w way) string {
		return answerText(w.ExecSync(w.ctx(), &cri.ExecSyncRequest{ContainerId: string(w.ctr), Cmd: []string{"/probe", "echo"}, Timeout: 20}))
	}},
	{"exec of what is not there", func(w way) string {
		return answerText(w.ExecSync(w.ctx(), &cri.ExecSyncRequest{ContainerId: string(w.ctr), Cmd: []string{"/nothing"}}))
	}},
	{"log opened anew", logOpened},
	{"port-forward", portForward},
	{"pull", pulled},
	{"pull of what is not there", func(w way) string {
		return answerText(w.PullImage(w.ctx(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: w.c.Image("nothing")}}))
	}},
	{"import", imported},
	{"a container's life", func(w way) string {
		pod := w.c.RunPod(real.PodSpec{Namespace: "shop", Name: "brief", UID: "5f0c6c3e-0000-4000-8000-000000000009"})
		id := w.c.RunContainer(pod, real.ContainerSpec{Name: "app", Env: map[string]string{"A": "b"}, Resources: &cri.LinuxContainerResources{CpuShares: 300}})
		first := w.c.FirstView(id)
		out := fmt.Sprintln(ociSpec(w.t, w.c, pod, id), first.Args, first.Env, first.Cgroup["cpu.shares"])
		out += answerText(w.StopContainer(w.ctx(), &cri.StopContainerRequest{ContainerId: string(id), Timeout: 10}))
		out += fmt.Sprintln(w.c.WaitExit(id))
		if err := os.Remove(w.c.LogFile(id)); err != nil { // the next way makes the same container
			out += err.Error()
		}
		w.c.RemovePod(pod)
		return out
	}},
	{"held calls about nothing", func(w way) string {
		out := ""
		for _, id := range []string{"", "nothing-of-this-name"} {
			out += answerText(w.RunPodSandbox(w.ctx(), &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{}}))
			out += answerText(w.CreateContainer(w.ctx(), &cri.CreateContainerRequest{PodSandboxId: id, Config: &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{}}, SandboxConfig: &cri.PodSandboxConfig{}}))
			out += answerText(w.StartContainer(w.ctx(), &cri.StartContainerRequest{ContainerId: id}))
			out += answerText(w.UpdateContainerResources(w.ctx(), &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: &cri.LinuxContainerResources{}}))
			out += answerText(w.UpdatePodSandboxResources(w.ctx(), &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: id}))
			out += answerText(w.StopContainer(w.ctx(), &cri.StopContainerRequest{ContainerId: id}))
			out += answerText(w.RemoveContainer(w.ctx(), &cri.RemoveContainerRequest{ContainerId: id}))
			out += answerText(w.StopPodSandbox(w.ctx(), &cri.StopPodSandboxRequest{PodSandboxId: id}))
			out += answerText(w.RemovePodSandbox(w.ctx(), &cri.RemovePodSandboxRequest{PodSandboxId: id})) + "\n"
		}
		return out
	}},
	{"an unknown method", func(w way) string {
		out := ""
		for _, method := range []string{"/runtime.v1.RuntimeService/NotYetInvented", "/runtime.v2.RuntimeService/Version"} {
			out += answerText(nil, w.conn.Invoke(w.ctx(), method, &cri.VersionRequest{}, &cri.VersionResponse{})) + "\n"
		}
		return out
	}},
	{"an unknown field", func(w way) string {
		status := &cri.ContainerStatusRequest{ContainerId: string(w.ctr)}
		status.ProtoReflect().SetUnknown([]byte{0xfa, 0xff, 0x04, 3, 'n', 'e', 'w'})
		stop := &cri.StopContainerRequest{ContainerId: "nothing-of-this-name"}
		stop.ProtoReflect().SetUnknown([]byte{0xfa, 0xff, 0x04, 3, 'n', 'e', 'w'})
		return answerText(w.ContainerStatus(w.ctx(), status)) + answerText(w.StopContainer(w.ctx(), stop))
	}},
	{"gzip", func(w way) string {
		return answerText(w.PodSandboxStatus(w.ctx(), &cri.PodSandboxStatusRequest{PodSandboxId: string(w.pod), Verbose: true}, grpc.UseCompressor(gzip.Name))) +
			answerText(w.StopContainer(w.ctx(), &cri.StopContainerRequest{ContainerId: "nothing-of-this-name"}, grpc.UseCompressor(gzip.Name)))
	}},
	{"metadata", func(w way) string {
		ctx := metadata.AppendToOutgoingContext(w.ctx(), "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-bin", "\x00\xff")
		var head, trail metadata.MD
		return answerText(w.Version(ctx, &cri.VersionRequest{}, grpc.Header(&head), grpc.Trailer(&trail))) + fmt.Sprint(head, trail)
	}},
	{"messages of 16 MiB, and more", func(w way) string {
		out := ""
		for _, n := range []int{a16MiB - 1000, a16MiB + 1000} {
			out += answerText(w.ImageStatus(w.ctx(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "/" + strings.Repeat("x", n)}}))
			out = out[:min(len(out), 200)] + "\n"
			out += answerText(w.CreateContainer(w.ctx(), &cri.CreateContainerRequest{
				PodSandboxId: "nothing-of-this-name", SandboxConfig: &cri.PodSandboxConfig{},
				Config: &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "x"}, Annotations: map[string]string{"long": strings.Repeat("x", n)}},
			})) + "\n"
		}
		return out
	}},
	{"cancelled", func(w way) string {
		file := filepath.Join(w.c.CgroupDirs(w.ctr)["cpuset"], "cgroup.procs")
		before, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		ctx, cancel := context.WithCancel(w.ctx())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := w.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: string(w.ctr), Cmd: []string{"/probe", "flood"}})
			ended <- err
		}()
		real.Eventually(w.t, patiently, func() error {
			now, err := os.ReadFile(file)
			had := strings.Fields(string(before))
			if err == nil && !slices.ContainsFunc(strings.Fields(string(now)), func(pid string) bool { return !slices.Contains(had, pid) && wasRead(pid) }) {
				err = fmt.Errorf("no more processes run: %q", now)
			}
			return err
		})
		cancel()
		return answerText(nil, <-ended)
	}},
	{"too late", func(w way) string {
		ctx, cancel := context.WithTimeout(w.ctx(), 3*time.Second) // now it runs, and its output is read
		defer cancel()
		return status.Code(func() error {
			_, err := w.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: string(w.ctr), Cmd: []string{"/probe"}})
			return err
		}()).String()
	}},
}

// wasRead reports whether a process is the workload's program and all its output was read. If an exec is cancelled
// before, the shim of containerd 1.6 waits half a minute for a reader, and all other calls wait for the shim.
func wasRead(pid string) bool {
	line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return err == nil && string(line) == "/probe\x00sleep\x00"
}

// TestDifferential makes the same calls direct and proxied on one runtime and compares the answers.
func TestDifferential(t *testing.T) {
	t.Parallel()
	replay(t, real.Start(t, real.WithoutNRI()))
}

// TestDifferential16 does the same with Debian's containerd 1.6.
func TestDifferential16(t *testing.T) {
	t.Parallel()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !real.Privately(t, builtBinary+"="+program) {
		return
	}
	replay(t, real.Start(t, real.WithRelease(real.V16), real.WithoutNRI()))
}

func replay(t *testing.T, c *real.Containerd) {
	t.Helper()
	a := startProxy(t, c, "")
	proxied, direct := wayTo(t, c, a.proxy()), wayTo(t, c, c.Socket())
	pod := c.RunPod(plain("server", ""))
	ctr := c.RunContainer(pod, real.ContainerSpec{Name: "app"})
	for _, w := range []*way{&direct, &proxied} {
		w.pod, w.ctr = pod, ctr
	}
	for _, call := range differential { // one after another, since lists are compared, too
		var heard [2]string
		for i, w := range []way{direct, proxied} {
			c.Through(w.socket)
			heard[i] = call.make(w)
		}
		t.Logf("%s: %.200s", call.name, heard[0])
		if heard[0] != heard[1] {
			at := 0
			for at < min(len(heard[0]), len(heard[1])) && heard[0][at] == heard[1][at] {
				at++
			}
			at = max(0, at-100)
			t.Errorf("%s\ndirect:  …%.400s\nproxied: …%.400s", call.name, heard[0][at:], heard[1][at:])
		}
	}
	events(t, c, direct, proxied)
	if n, err := a.status(); err != nil || len(n.Attachments) != 1 || n.Attachments[0].State != "connected" {
		t.Errorf("after all of it: %+v, %v", n, err)
	}
}

// logOpened moves a container's log and reopens it, as a kubelet rotates logs.
func logOpened(w way) string {
	file := w.c.LogFile(w.ctr)
	aside := file + ".aside"
	if err := os.Rename(file, aside); err != nil {
		return err.Error()
	}
	out := answerText(w.ReopenContainerLog(w.ctx(), &cri.ReopenContainerLogRequest{ContainerId: string(w.ctr)}))
	_, err := os.Stat(file)
	out += fmt.Sprint(err)
	if err := os.Rename(aside, file); err != nil {
		return err.Error()
	}
	return out + answerText(w.ReopenContainerLog(w.ctx(), &cri.ReopenContainerLogRequest{ContainerId: string(w.ctr)}))
}

// portForward talks to a server in the pod, which uses the host's network, over a stream of the runtime.
func portForward(w way) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err.Error()
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	answer, err := w.PortForward(w.ctx(), &cri.PortForwardRequest{PodSandboxId: string(w.pod), Port: []int32{int32(port)}})
	if err != nil {
		return answerText(nil, err)
	}
	u, err := url.Parse(answer.Url)
	if err != nil {
		return err.Error()
	}
	shape := u.Host + filepath.Dir(u.Path)
	heard, err := forwarded(u, port, "hello there")
	return fmt.Sprintln(shape, heard, err)
}

// forwarded sends a text to a port and returns the answer (channel protocol: the first of a port's two channels is
// data, and each begins with the port's number).
func forwarded(u *url.URL, port int, say string) (string, error) {
	origin := *u
	u.Scheme = "ws"
	u.RawQuery = fmt.Sprint("port=", port)
	conf, err := websocket.NewConfig(u.String(), origin.String())
	if err != nil {
		return "", err
	}
	conf.Protocol = []string{"v4.channel.k8s.io"}
	ws, err := websocket.DialConfig(conf)
	if err != nil {
		return "", err
	}
	defer ws.Close()
	if err := ws.SetDeadline(time.Now().Add(patiently)); err != nil {
		return "", err
	}
	if err := websocket.Message.Send(ws, append([]byte{0}, say...)); err != nil {
		return "", err
	}
	heard, first := "", true
	for len(heard) < len(say) {
		var m []byte
		if err := websocket.Message.Receive(ws, &m); err != nil {
			return heard, err
		}
		switch {
		case len(m) == 0 || m[0] != 0:
		case first:
			if len(m) != 3 || int(wire.LittleEndian.Uint16(m[1:])) != port {
				return "", fmt.Errorf("the data channel begins with %v", m)
			}
			first = false
		default:
			heard += string(m[1:])
		}
	}
	return heard, nil
}

// pulled pulls an image that the runtime does not have from the registry, and removes it.
func pulled(w way) string {
	spec := &cri.ImageSpec{Image: w.c.Image("extra")}
	return answerText(w.ImageStatus(w.ctx(), &cri.ImageStatusRequest{Image: spec})) +
		answerText(w.PullImage(w.ctx(), &cri.PullImageRequest{Image: spec})) +
		answerText(w.ImageStatus(w.ctx(), &cri.ImageStatusRequest{Image: spec})) +
		answerText(w.RemoveImage(w.ctx(), &cri.RemoveImageRequest{Image: spec})) +
		answerText(w.ImageStatus(w.ctx(), &cri.ImageStatusRequest{Image: spec}))
}

// imported imports an image with containerd's client, which uses services besides the CRI, with bidirectional streams.
func imported(w way) string {
	const ref = "example.org/imported:1"
	file := filepath.Join(w.t.TempDir(), "image.tar")
	if err := os.WriteFile(file, w.c.Archive("extra", ref), 0o600); err != nil {
		return err.Error()
	}
	ctr := func(args ...string) string {
		out, err := exec.CommandContext(w.ctx(), "ctr", append([]string{"--address", w.socket, "--namespace", "k8s.io"}, args...)...).CombinedOutput()
		if err != nil {
			w.t.Errorf("ctr %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	spec := &cri.ImageSpec{Image: ref}
	ctr("images", "import", file)
	out := ""
	real.Eventually(w.t, patiently, func() error { // the CRI plugin gets it by an event
		answer, err := w.ImageStatus(w.ctx(), &cri.ImageStatusRequest{Image: spec})
		if out = answerText(answer, err); answer.GetImage() == nil {
			return errors.New("the image is not listed")
		}
		return nil
	})
	out += ctr("images", "check", "name=="+ref)
	return out + answerText(w.RemoveImage(w.ctx(), &cri.RemoveImageRequest{Image: spec}))
}

// events compares two streams of the same events.
func events(t *testing.T, c *real.Containerd, ways ...way) {
	t.Helper()
	var streams []cri.RuntimeService_GetContainerEventsClient
	for _, w := range ways {
		s, err := w.GetContainerEvents(w.ctx(), &cri.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	heard := make([]string, len(ways))
	if c.Release() == real.V16 { // this release has no events
		for i, s := range streams {
			_, err := s.Recv()
			heard[i] = answerText(nil, err)
		}
		same(t, "the answer", heard[1], heard[0])
		return
	}
	id := ""
	real.Eventually(t, 2*patiently, func() error { // only its first event shows that a stream is open
		pod := c.RunPod(plain("", ""))
		id = string(c.RunContainer(pod, real.ContainerSpec{Args: []string{"exit", "0"}}))
		c.WaitExit(real.ContainerID(id))
		c.RemovePod(pod)
		for i, s := range streams {
			for seen := false; !seen; {
				ev, err := s.Recv()
				if err != nil {
					return err
				}
				if ev.ContainerId == id {
					heard[i] += fmt.Sprintln(ev.ContainerEventType, ev.CreatedAt, ev.PodSandboxStatus.GetId(), len(ev.ContainersStatuses))
				}
				seen = ev.ContainerId == id && ev.ContainerEventType == cri.ContainerEventType_CONTAINER_DELETED_EVENT
			}
		}
		return nil
	})
	t.Log(heard[0])
	same(t, "events", heard[1], heard[0])
}
