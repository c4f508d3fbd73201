package install_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/test/vm/agent"
)

// delegated waits until the agent on a pod's node does not use the pod's CPUs itself any more. The guests
// mount the cgroup file system with nsdelegate, as systemd does: the kernel does not let the agent write
// its own cgroup, so the runtime writes it.
func (c *cluster) delegated(owner pod) {
	c.t.Helper()
	n := owner.on
	if mount := n.m.Sh("grep ' cgroup2 ' /proc/mounts"); !strings.Contains(mount, "nsdelegate") {
		c.t.Fatalf("the guest does not mount with nsdelegate: %s", mount)
	}
	own := strings.TrimSpace(c.must(`kubectl -n kube-system get pods -l app.kubernetes.io/name=trimtab --field-selector spec.nodeName=` + n.name +
		` -o jsonpath='{.items[*].metadata.name}'`))
	c.await("the agent's own container has left the CPUs of db", func(ctx context.Context) error {
		is, err := n.container(ctx, "kube-system", own)
		if err == nil && overlap(is.CPUs, owner.CPUs) {
			err = fmt.Errorf("%s has %s, db %s", own, is.CPUs, owner.CPUs)
		}
		return err
	})
	c.await("every value is in force", func(context.Context) error {
		s, err := agent.New(n.m).Status()
		if err == nil && s.Unapplied > 0 {
			err = fmt.Errorf("%d values are not in force", s.Unapplied)
		}
		return err
	})
	said := c.must("kubectl -n kube-system exec " + own + " -- trimtab explain kube-system/" + own)
	if !strings.Contains(said, "nsdelegate") {
		c.t.Errorf("the agent does not say who wrote its own CPUs:\n%s", said)
	}
	c.t.Log(said)
}
