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
	// reopenStatus is the pause before the agent tries again to open a status
	// socket that another agent serves.
	reopenStatus = 200 * time.Millisecond
	// askOtherTimeout limits the time of the question who serves it, and is how long
	// an answer counts.
	askOtherTimeout = 2 * time.Second
	// remindOther is how often the log names the other agent.
	remindOther = 5 * time.Minute
)

// neighbour is another agent on this node.
type neighbour struct {
	log    *slog.Logger
	lock   *nodelock.Lock // the locks against a second agent
	path   string         // the path of our status socket; "" for none
	accept func(net.Listener) net.Listener
	// socket is our status socket; nil if it is not ours, or none is configured.
	socket *status.Socket

	mu sync.Mutex // guards all below
	// used is why the status socket cannot be opened: another agent serves it.
	used   error
	asked  time.Time       // the process that served it last
	by     nodelock.Holder // the answer
	taken  *nodelock.Taken // why this agent is in standby; nil if it works
	logged time.Time       // when the log last named the other agent
	lacks  map[string]bool // places that cannot be locked, and that the log has named
}

// places are the directories that agents of one node lock: the kubelet's cgroup
// root, which each must write below, and those of the sockets it attaches through.
// They follow from where it attaches, so that two agents at one runtime always
// share one, whatever their configuration.
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

// admit is called by attachments before they connect. An error, a *nodelock.Taken,
// says that another agent works on this node.
func (n *neighbour) admit() error {
	taken := n.socketTaken()
	if taken == nil {
		err := n.lock.Take()
		if !errors.As(err, &taken) && err != nil {
			n.unlocked(err)
		}
	}
	n.mu.Lock()
	before := n.taken
	n.taken = taken
	remind := taken != nil && (before == nil || before.By.ID != taken.By.ID || time.Since(n.logged) >= remindOther)
	if remind {
		n.logged = time.Now()
	}
	n.mu.Unlock()
	switch {
	case remind:
		n.log.Error("another agent works on this node; standing by", logkey.Err, taken)
	case taken == nil && before != nil:
		n.log.Info("the other agent has ended; taking over", logkey.Owner, before.By.String())
	}
	if taken != nil {
		return taken
	}
	return nil
}

// unlocked logs once that places cannot be locked.
func (n *neighbour) unlocked(err error) {
	n.mu.Lock()
	known := n.lacks[err.Error()]
	if n.lacks == nil {
		n.lacks = map[string]bool{}
	}
	n.lacks[err.Error()] = true
	n.mu.Unlock()
	if !known {
		n.log.Warn("a second agent on this node may not be noticed", logkey.Err, err)
	}
}

// standby is why this agent decides nothing; "" if it works.
func (n *neighbour) standby() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken == nil {
		return ""
	}
	return n.taken.Error()
}

// open opens the status socket before anything is attached: if another agent serves
// it, this one stays in standby.
func (n *neighbour) open(ctx context.Context) {
	if n.path == "" {
		return
	}
	var err error
	n.socket, err = status.Open(ctx, n.path)
	if err == nil && n.accept != nil {
		n.socket.Wrap(n.accept)
	}
	n.mu.Lock()
	n.used = err
	n.mu.Unlock()
}

// serve answers at the status socket until ctx ends. While another agent serves it,
// it waits. If it cannot be opened, or accepting fails (as it does permanently if the
// kernel has no memory for a moment), it is opened again: a node without a status
// socket still needs its QoS.
func (n *neighbour) serve(ctx context.Context, source status.Source) {
	again := time.NewTicker(reopenStatus)
	defer again.Stop()
	reported := ""
	for {
		n.mu.Lock()
		err := n.used
		n.mu.Unlock()
		if n.socket != nil {
			if err = n.socket.Serve(ctx, source); err == nil {
				return
			}
			n.socket = nil // which its end has closed
		}
		if err != nil && !errors.Is(err, socket.ErrInUse) && err.Error() != reported {
			reported = err.Error()
			n.log.Error("status is not served; the socket is opened again", logkey.Socket, n.path, logkey.Err, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			n.open(ctx)
		}
	}
}

// socketTaken is the other agent that serves our status socket; nil if there is
// none.
func (n *neighbour) socketTaken() *nodelock.Taken {
	n.mu.Lock()
	used, by, asked := errors.Is(n.used, socket.ErrInUse), n.by, n.asked
	n.mu.Unlock()
	if !used {
		return nil
	}
	if asked.IsZero() || time.Since(asked) >= askOtherTimeout {
		by = whoServes(n.path)
		n.mu.Lock()
		n.by, n.asked = by, time.Now()
		n.mu.Unlock()
	}
	return &nodelock.Taken{By: by, Evidence: fmt.Sprintf("it serves %s (paths.statusSocket)", n.path)}
}

// whoServes asks the agent at a status socket who it is.
func whoServes(path string) nodelock.Holder {
	ctx, cancel := context.WithTimeout(context.Background(), askOtherTimeout)
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
	if n.Agent.PID == 0 { // an agent older than this answer
		return nodelock.Holder{Config: n.ConfigFile, Version: n.Version, Started: n.Started}
	}
	return n.Agent
}
