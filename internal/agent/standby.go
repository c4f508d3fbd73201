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
	// statusReopenPause is the pause before the agent tries again to open its status socket. It tries again if another
	// agent serves the socket, or if an error has stopped the socket.
	statusReopenPause = 200 * time.Millisecond
	// otherAgentTimeout limits the request to the agent that serves the status socket. The answer is cached for
	// the same time.
	otherAgentTimeout = 2 * time.Second
	// otherReminderInterval is how often the agent logs which other agent works on the node.
	otherReminderInterval = 5 * time.Minute
)

// otherAgent detects another agent on this node, and keeps this agent in standby while there is one.
type otherAgent struct {
	log              *slog.Logger
	lock             *nodelock.Lock                  // the locks that exclude a second agent
	statusSocketPath string                          // the path of this agent's status socket; "" for none
	wrapListener     func(net.Listener) net.Listener // wraps the listener of the status socket; nil for no change
	// socket is this agent's status socket; nil if another agent serves it, or if none is configured.
	socket *status.Socket

	mu sync.Mutex // guards all below
	// socketInUse is the error of the last attempt to open the status socket; nil if the socket was opened. If another
	// agent serves the socket, it is socket.ErrInUse.
	socketInUse    error
	askedAt        time.Time            // when this agent last requested the identity of the process that serves the socket
	socketHolder   nodelock.Holder      // the process that served the socket at that time
	standbyReason  *nodelock.InUseError // why this agent is in standby; nil if it is active
	lastLogged     time.Time            // when the other agent was logged last
	loggedLockErrs map[string]bool      // the logged errors of directories that cannot be locked
}

// lockedDirs returns the directories that the agent locks to exclude a second agent; nil in observe mode. They are the
// kubelet's cgroup root, below which each agent writes, and the directories of the runtime's sockets. So two agents of
// one runtime lock a common directory, even if their configurations differ.
func (a *Agent) lockedDirs() []nodelock.LockedDir {
	c := a.opt.Config
	if isObserveMode(c) { // an agent that only observes may run beside an active agent
		return nil
	}
	var all []nodelock.LockedDir
	dir := a.opt.CgroupDir
	if a.opt.Tree == nil {
		dir = c.Cgroup.Root
		if a.node.tree.Version == cgroup.V1 {
			dir = filepath.Join(dir, "cpuset")
		}
		dir = filepath.Join(dir, filepath.Clean("/"+c.Bypass.CgroupRoot))
	}
	if dir != "" {
		all = append(all, nodelock.LockedDir{Dir: dir, Description: "kubelet's cgroup root (cgroup.root, bypass.cgroupRoot)"})
	}
	if a.attachments.nri != nil {
		all = append(all, nodelock.LockedDir{Dir: filepath.Dir(c.NRI.Socket), Description: "directory of the NRI socket (nri.socket)"})
	}
	if a.attachments.cri != nil || a.attachments.bypass != nil {
		all = append(all, nodelock.LockedDir{Dir: filepath.Dir(socketOf(c.CRI.Endpoint)), Description: "directory of the runtime's socket (cri.endpoint)"})
	}
	return all
}

// admit takes the locks of the node for this agent. Attachments call admit before they connect to the runtime. It
// returns a *nodelock.InUseError if another agent works on this node.
func (n *otherAgent) admit() error {
	taken := n.checkSocket()
	if taken == nil {
		err := n.lock.Take()
		if !errors.As(err, &taken) && err != nil {
			n.logLockError(err)
		}
	}
	n.mu.Lock()
	before := n.standbyReason
	n.standbyReason = taken
	remind := taken != nil && (before == nil || before.Holder.ID != taken.Holder.ID || time.Since(n.lastLogged) >= otherReminderInterval)
	if remind {
		n.lastLogged = time.Now()
	}
	n.mu.Unlock()
	switch {
	case remind:
		n.log.Error("another agent works on this node; this agent is in standby", logkey.Err, taken)
	case taken == nil && before != nil:
		n.log.Info("the other agent has ended; this agent is now active", logkey.Owner, before.Holder.String())
	}
	if taken != nil {
		return taken
	}
	return nil
}

// logLockError logs, once for each error, that a directory cannot be locked.
func (n *otherAgent) logLockError(err error) {
	n.mu.Lock()
	known := n.loggedLockErrs[err.Error()]
	if n.loggedLockErrs == nil {
		n.loggedLockErrs = map[string]bool{}
	}
	n.loggedLockErrs[err.Error()] = true
	n.mu.Unlock()
	if !known {
		n.log.Warn("the agent cannot take a lock, so it may not detect a second agent on this node", logkey.Err, err)
	}
}

// standby returns the reason why this agent is in standby; "" if it is active.
func (n *otherAgent) standby() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.standbyReason == nil {
		return ""
	}
	return n.standbyReason.Error()
}

// openSocket opens the status socket before the agent attaches. If another agent serves the socket, this agent
// stays in standby.
func (n *otherAgent) openSocket(ctx context.Context) {
	if n.statusSocketPath == "" {
		return
	}
	var err error
	n.socket, err = status.Open(ctx, n.statusSocketPath)
	if err == nil && n.wrapListener != nil {
		n.socket.Wrap(n.wrapListener)
	}
	n.mu.Lock()
	n.socketInUse = err
	n.mu.Unlock()
}

// serve serves the status socket until ctx ends. While another agent serves the socket, this agent waits. After any
// other error it opens the socket again, because the agent must run without a status socket, too. For example,
// accept(2) can fail permanently after the kernel was out of memory.
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
			n.socket = nil // Serve has closed the socket
		}
		if err != nil && !errors.Is(err, socket.ErrInUse) && err.Error() != reported {
			reported = err.Error()
			n.log.Error("the agent does not serve the status socket now; it tries again", logkey.Socket, n.statusSocketPath, logkey.Err, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			n.openSocket(ctx)
		}
	}
}

// checkSocket returns an error if another agent serves this agent's status socket; nil if none does.
func (n *otherAgent) checkSocket() *nodelock.InUseError {
	n.mu.Lock()
	used, by, asked := errors.Is(n.socketInUse, socket.ErrInUse), n.socketHolder, n.askedAt
	n.mu.Unlock()
	if !used {
		return nil
	}
	if asked.IsZero() || time.Since(asked) >= otherAgentTimeout {
		by = holderOfSocket(n.statusSocketPath)
		n.mu.Lock()
		n.socketHolder, n.askedAt = by, time.Now()
		n.mu.Unlock()
	}
	return &nodelock.InUseError{Holder: by, Evidence: fmt.Sprintf("it serves %s (paths.statusSocket)", n.statusSocketPath)}
}

// holderOfSocket requests the identity of the agent that serves a status socket. The zero Holder means that there was
// no answer.
func holderOfSocket(path string) nodelock.Holder {
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
