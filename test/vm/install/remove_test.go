package install_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// remove uninstalls Trimtab, restores all values, and searches for remains: in the API server by name,
// label and annotation, in the cgroup files, and on the nodes, except for what the kubelet keeps of each
// pod for a while.
func (c *cluster) remove() {
	c.follow("Remove")
	c.condition("")
	if left, err := c.sh("kubectl get noderesourcetopologies -o name"); err != nil || strings.TrimSpace(left) != "" {
		c.t.Errorf("of NodeResourceTopology is left: %q (%v)", left, err)
	}
	c.await("no object is left", func(context.Context) error {
		left, err := c.sh(`kubectl api-resources --verbs=list -o name | grep -v '^events' | paste -sd, |
xargs -I{} kubectl get {} --all-namespaces --ignore-not-found --no-headers \
-o custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name,LABELS:.metadata.labels,NOTES:.metadata.annotations |
{ grep trimtab || true; }`)
		if err == nil && strings.TrimSpace(left) != "" {
			err = errors.New(left)
		}
		return err
	})
	for _, n := range c.nodes {
		if left := n.m.Sh("find / /run -xdev -name '*trimtab*' -not -path '/payload*' -not -path '/var/lib/containerd/*' -not -path '/var/log/*' -not -path '/var/lib/kubelet/pods/*' 2>/dev/null || true"); left != "" {
			c.t.Errorf("%s has left:\n%s", n.name, left)
		}
		if is := n.tops(); is != n.untouched {
			c.t.Errorf("cgroups above pods of %s were\n%s\nand are\n%s", n.name, n.untouched, is)
		}
	}
	c.restored()
}

// restored compares the kernel files of pods that Trimtab had changed with those of pods that start without it.
func (c *cluster) restored() {
	c.t.Helper()
	before, wholeMems := map[string]running{}, map[string]string{}
	for _, app := range []string{"db", "web"} {
		c.await(app+" may use all CPUs again", func(ctx context.Context) error {
			all, err := c.pods(ctx, app)
			for _, p := range all {
				if whole := p.on.m.Sh("cat /sys/fs/cgroup/cpuset.cpus.effective"); p.CPUs != whole {
					return fmt.Errorf("%s has %s of %s", p.name, p.CPUs, whole)
				}
				before[app], wholeMems[app] = p.running, p.on.m.Sh("cat /sys/fs/cgroup/cpuset.mems.effective")
			}
			return err
		})
	}
	c.must("kubectl rollout restart deployment/db deployment/web && kubectl rollout status deployment/db --timeout=7m && kubectl rollout status deployment/web --timeout=7m")
	for app, was := range before {
		c.await("a new pod of "+app+" runs alone", func(ctx context.Context) error {
			all, err := c.pods(ctx, app)
			if err != nil || len(all) != 1 {
				return fmt.Errorf("%d pods (%w)", len(all), err)
			}
			is := all[0].running
			// The kernel cannot empty the lists of a cgroup with processes. So the lists have all CPUs and memory nodes
			// (docs/operate.md).
			if is.Set == "" && was.Set == was.CPUs {
				was.Set = ""
			}
			if is.Mems == "" && was.Mems == wholeMems[app] {
				was.Mems = ""
			}
			if was.ID = is.ID; was != is {
				c.t.Errorf("of %s is left %+v, a pod without Trimtab has %+v", app, was, is)
			}
			return nil
		})
	}
}
