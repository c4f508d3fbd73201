package real

import (
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real/internal/host"
)

// quickReconnect suits a daemon that restarts in a quarter of a second; the default backs off for seconds.
var quickReconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 200 * time.Millisecond},
	MinConnectTimeout: time.Second,
}

// asKubelet sets a kubelet's timeout for the HTTP/2 handshake of a connection (k8s.io/cri-client,
// minConnectionTimeout).
func asKubelet(p grpc.ConnectParams) grpc.ConnectParams {
	p.MinConnectTimeout = 5 * time.Second
	return p
}

// cleanUp first removes pods through the CRI while the daemon runs, since shims outlive it and would keep their
// containers. Then it removes everything below the paths of this test.
func (c *Containerd) cleanUp() {
	if c.t.Failed() {
		c.showLog()
	}
	c.client = c.direct // a proxy has ended by now
	if c.PID() != 0 {
		c.removePods()
	}
	if err := c.end(syscall.SIGTERM); err != nil {
		c.t.Log(err)
	}
	if left := host.Processes(c.dir); len(left) > 0 {
		c.t.Logf("real containerd: sweeping processes %v", left)
	}
	if err := host.Sweep(c.dir, c.parent); err != nil {
		c.t.Errorf("real containerd: cleanup is incomplete: %v", err)
	}
	if c.connection != nil {
		c.connection.Close()
	}
	if c.images != nil {
		c.images.Close()
	}
	if c.dismiss != nil {
		c.dismiss()
	}
}

func (c *Containerd) removePods() {
	ctx, cancel := c.call()
	defer cancel()
	pods, err := c.direct.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		c.t.Logf("list pods at cleanup: %v", err)
		return
	}
	containers, err := c.direct.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		c.t.Logf("list containers at cleanup: %v", err)
		return
	}
	for _, one := range containers.Containers { // the workload needs no grace period
		_, _ = c.direct.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: one.Id})
	}
	for _, pod := range pods.Items {
		if err := c.TryRemovePod(PodID(pod.Id)); err != nil {
			c.t.Logf("remove pod at cleanup: %v", err)
		}
	}
}

func (c *Containerd) showLog() {
	b, err := os.ReadFile(c.logFile())
	if err != nil {
		return
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) > logTail {
		lines = lines[len(lines)-logTail:]
	}
	c.t.Logf("end of containerd's log:\n%s", strings.Join(lines, "\n"))
}
