package install_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/trimtab/trimtab/test/vm/agent"
)

// outage is how long the API server is stopped: five minutes in make soak.
func outage() time.Duration {
	if os.Getenv("TRIMTAB_SOAK") != "" {
		return 5 * time.Minute
	}
	return 45 * time.Second
}

// away stops the API server, and ends an agent meanwhile. Running pods keep their values, and the agent
// starts again with its copy of the ConfigMap.
func (c *cluster) away() {
	c.once("Ask all nodes", "make build")
	c.once("Configure nodes", "kubectl trimtab config apply -f examples/cluster/reserved.yaml")
	c.reserved("7")
	before, shared := c.apart(), c.shared()
	c.plane.StopServer()
	stopped := time.Now()
	stop := c.watch(append(shared, before)...)
	n := before.on
	was := n.m.Sh("pidof trimtab")
	n.m.Sh("kill -9 " + was)
	c.configuredFrom(n, "copy on this node")
	if is := n.m.Sh("pidof trimtab"); is == was {
		c.t.Errorf("the agent is still process %s", is)
	}
	c.await("the API server has been away long enough", func(context.Context) error {
		if time.Since(stopped) < outage() {
			return errNotYet
		}
		return nil
	})
	c.t.Log(stop())
	c.plane.StartServer(c.flags...)
	c.t.Logf("the API server was away for %.0f s", time.Since(stopped).Seconds())
	c.unmoved(before, c.apart())
	c.must("kubectl scale deployment/web --replicas=3 && kubectl rollout status deployment/web --timeout=10m && kubectl scale deployment/web --replicas=1")
	c.configuredFrom(n, "API server")
	c.ready()
	c.delegated(c.apart())
}

// configuredFrom waits until the agent of a node is attached, and uses the ConfigMap for all nodes from the
// given source.
func (c *cluster) configuredFrom(n *node, from string) {
	c.t.Helper()
	c.await(n.name+" is attached, with the configuration of the "+from, func(context.Context) error {
		s, err := agent.New(n.m).Status()
		if err != nil {
			return err
		}
		if len(s.Attachments) != 1 || s.Attachments[0].State != "connected" {
			return fmt.Errorf("%+v", s.Attachments)
		}
		if k := s.Cluster.Config; k.From != from || len(k.Layers) != 1 {
			return fmt.Errorf("the configuration is %+v", k)
		}
		return nil
	})
}

// drain drains the owner's node: its pods move, the agent stays, and no CPU is owned there.
func (c *cluster) drain() {
	before := c.apart()
	c.must("kubectl drain " + before.on.name + " --ignore-daemonsets --timeout=8m")
	after := c.apart()
	if after.on.name == before.on.name {
		c.t.Errorf("db is still on %s", after.on.name)
	}
	c.await("no CPU is owned on the drained node", func(context.Context) error {
		s, err := agent.New(before.on.m).Status()
		if err == nil && len(s.CPUs.Grants) > 0 {
			err = fmt.Errorf("%+v", s.CPUs.Grants)
		}
		return err
	})
	c.must("kubectl uncordon " + before.on.name)
	c.ready()
}
