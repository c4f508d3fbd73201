package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/nodelock"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// statusReopenPause is the pause before the agent tries again to open a status
	// socket that another agent serves.
	statusReopenPause = 200 * time.Millisecond
	// otherAgentTimeout limits the question to the agent that serves the socket. An answer is valid for the
	// same time.
	otherAgentTimeout = 2 * time.Second
	// otherReminderInterval is how often the log names the other agent.
	otherReminderInterval = 5 * time.Minute
)

// otherAgent is another agent on this node.
type otherAgent struct {
	log    *slog.Logger
	lock   *nodelock.Lock // the locks that exclude a second agent
	path   string         // the path of our status socket; "" for none
	accept func(net.Listener) net.Listener
	// socket is our status socket; nil if another agent serves it, or if none is configured.
	socket *status.Socket

	mu sync.Mutex // guards all below
	// socketInUse is the error if the status socket cannot be opened because another agent serves it.
	socketInUse   error
	asked         time.Time       // the process that served the socket last
	by            nodelock.Holder // when that process was asked
	standbyReason *nodelock.Taken // why this agent is in standby; nil if it works
	logged        time.Time       // when the log last named the other agent
	unlockable    map[string]bool // places that cannot be locked and that were logged
}

// places are the directories that the agents of one node lock: the kubelet's cgroup root, because each
// agent writes below it, and the directories of the sockets through which the agent attaches. They depend
// only on where the agent attaches. So two agents of one runtime always lock the same directory, whatever
// their configurations are.
func (a *Agent) places() []nodelock.Place {
	c := a.opt.Config
	if observes(c) { // beside an agent that works
		return nil
	}
	var all []nodelock.Place
	dir := a.opt.CgroupDir
	if a.opt.Tree == nil {
		dir = c.Cgroup.Root
		if a.node.tree.Version == cgroup.V1 {
			dir = filepath.Join(dir, "cpuset")
		}
		dir = filepath.Join(dir, filepath.Clean("/"+c.Bypass.CgroupRoot))
	}
	if dir != "" {
		all = append(all, nodelock.Place{Dir: dir, What: "kubelet's cgroup root (cgroup.root, bypass.cgroupRoot)"})
	}
	if a.attached.nri != nil {
		all = append(all, nodelock.Place{Dir: filepath.Dir(c.NRI.Socket), What: "directory of the NRI socket (nri.socket)"})
	}
	if a.attached.cri != nil || a.attached.bypass != nil {
		all = append(all, nodelock.Place{Dir: filepath.Dir(socketOf(c.CRI.Endpoint)), What: "directory of the runtime's socket (cri.endpoint)"})
	}
	return all
}

// admit is called by attachments before they connect. If another agent works on this node, admit returns a
// *nodelock.Taken error.
func (n *otherAgent) admit() error {
	taken := n.socketTaken()
	if taken == nil {
		err := n.lock.Take()
		if !errors.As(err, &taken) && err != nil {
			n.logUnlockable(err)
		}
	}
	n.mu.Lock()
	before := n.standbyReason
	n.standbyReason = taken
	remind := taken != nil && (before == nil || before.By.ID != taken.By.ID || time.Since(n.logged) >= otherReminderInterval)
	if remind {
		n.logged = time.Now()
	}
	n.mu.Unlock()
	switch {
	case remind:
		n.log.Error("another agent works on this node; this agent is in standby", logkey.Err, taken)
	case taken == nil && before != nil:
		n.log.Info("the other agent has ended; this agent takes over", logkey.Owner, before.By.String())
	}
	if taken != nil {
		return taken
	}
	return nil
}

// logUnlockable logs once that some directories cannot be locked.
func (n *otherAgent) logUnlockable(err error) {
	n.mu.Lock()
	known := n.unlockable[err.Error()]
	if n.unlockable == nil {
		n.unlockable = map[string]bool{}
	}
	n.unlockable[err.Error()] = true
	n.mu.Unlock()
	if !known {
		n.log.Warn("the agent may not notice a second agent on this node", logkey.Err, err)
	}
}

// standby returns why this agent decides nothing; "" if it is active.
func (n *otherAgent) standby() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.standbyReason == nil {
		return ""
	}
	return n.standbyReason.Error()
}

// open opens the status socket before the agent attaches. If another agent serves the socket, this agent
// stays in standby.
func (n *otherAgent) open(ctx context.Context) {
	if n.path == "" {
		return
	}
	var err error
	n.socket, err = status.Open(ctx, n.path)
	if err == nil && n.accept != nil {
		n.socket.Wrap(n.accept)
	}
	n.mu.Lock()
	n.socketInUse = err
	n.mu.Unlock()
}

// serve answers at the status socket until ctx ends. While another agent serves the socket, it waits. If
// the socket cannot be opened, or accepting fails (permanently if the kernel was out of memory once), it
// opens the socket again: a node without a status socket still needs its QoS.
func (n *otherAgent) serve(ctx context.Context, source status.Source) {
	again := time.NewTicker(statusReopenPause)
	defer again.Stop()
	reported := ""
	for {
		n.mu.Lock()
		err := n.socketInUse
		n.mu.Unlock()
		if n.socket != nil {
			if err = n.socket.Serve(ctx, source); err == nil {
				return
			}
			n.socket = nil // the error after the listener was closed
		}
		if err != nil && !errors.Is(err, socket.ErrInUse) && err.Error() != reported {
			reported = err.Error()
			n.log.Error("the status socket has stopped; the agent opens it again", logkey.Socket, n.path, logkey.Err, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			n.open(ctx)
		}
	}
}

// socketTaken returns the other agent that serves our status socket; nil if there is none.
func (n *otherAgent) socketTaken() *nodelock.Taken {
	n.mu.Lock()
	used, by, asked := errors.Is(n.socketInUse, socket.ErrInUse), n.by, n.asked
	n.mu.Unlock()
	if !used {
		return nil
	}
	if asked.IsZero() || time.Since(asked) >= otherAgentTimeout {
		by = whoServes(n.path)
		n.mu.Lock()
		n.by, n.asked = by, time.Now()
		n.mu.Unlock()
	}
	return &nodelock.Taken{By: by, Evidence: fmt.Sprintf("it serves %s (paths.statusSocket)", n.path)}
}

// whoServes asks the agent at a status socket for its identity.
func whoServes(path string) nodelock.Holder {
	ctx, cancel := context.WithTimeout(context.Background(), otherAgentTimeout)
	defer cancel()
	c, err := status.Dial(ctx, path)
	if err != nil {
		return nodelock.Holder{}
	}
	defer c.Close()
	n, err := c.Status(ctx)
	if err != nil {
		return nodelock.Holder{}
	}
	if n.Agent.PID == 0 { // an older agent, which does not report its identity
		return nodelock.Holder{Config: n.ConfigFile, Version: n.Version, Started: n.Started}
	}
	return n.Agent
}
