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

// quickReconnect has the connection parameters for a daemon that restarts in a quarter of a second. With its defaults,
// gRPC waits for seconds before it connects again.
var quickReconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 200 * time.Millisecond},
	MinConnectTimeout: time.Second,
}

// asKubelet returns connection parameters with the kubelet's timeout for the HTTP/2 handshake (k8s.io/cri-client,
// minConnectionTimeout).
func asKubelet(p grpc.ConnectParams) grpc.ConnectParams {
	p.MinConnectTimeout = 5 * time.Second
	return p
}

// cleanUp first removes pods through the CRI while the daemon runs. Otherwise the shims and containers would continue
// to run after the daemon. Then it removes everything below the directory and the cgroup parent of this test.
func (c *Containerd) cleanUp() {
	if c.t.Failed() {
		c.showLog()
	}
	c.client = c.direct // a proxy that the test used (Through) has ended by now
	if c.PID() != 0 {
		c.removePods()
	}
	if err := c.end(syscall.SIGTERM); err != nil {
		c.t.Log(err)
	}
	if left := host.Processes(c.dir); len(left) > 0 {
		c.t.Logf("real containerd: the cleanup kills the processes %v", left)
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

// removePods removes all pods. It logs errors, because the rest of the cleanup removes what is left.
func (c *Containerd) removePods() {
	ctx, cancel := c.callContext()
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

// showLog logs the last lines of containerd's log.
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
