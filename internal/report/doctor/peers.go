package doctor

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Constants of sock_diag(7) and of Linux' include/uapi/linux/unix_diag.h.
const (
	diagByFamily  = 20
	diagShowName  = 1 << 0
	diagShowPeer  = 1 << 2
	diagName      = 0
	diagPeer      = 2
	diagMessage   = 16 // bytes of unix_diag_msg
	diagConnected = 1 << 1
)

// peersOf returns the processes that are connected to a listening socket of this node, as "name (PID)", sorted. It
// asks the kernel which sockets are the other ends of the accepted ones. It does not find processes of other network
// namespaces' sockets, and needs the right to read /proc/PID/fd.
func peersOf(socket string) ([]string, error) {
	inodes, err := peerInodes(socket)
	if err != nil || len(inodes) == 0 {
		return nil, err
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err != nil || !inodes[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil { // it has ended
			continue
		}
		found[fmt.Sprintf("%s (%s)", strings.TrimSpace(string(name)), pid)] = true
	}
	var all []string
	for one := range found {
		all = append(all, one)
	}
	slices.Sort(all)
	return all, nil
}

// peerInodes returns the inodes of the sockets that are connected to a listening one.
func peerInodes(socket string) (map[string]bool, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for connected sockets: %w", err)
	}
	defer unix.Close(fd)
	req := binary.NativeEndian.AppendUint32(nil, unix.SizeofNlMsghdr+24)
	req = binary.NativeEndian.AppendUint16(req, diagByFamily)
	req = binary.NativeEndian.AppendUint16(req, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req = append(req, make([]byte, 8)...)                                                // sequence and port
	req = append(req, unix.AF_UNIX, 0, 0, 0)                                             // family, protocol, padding
	for _, word := range []uint32{diagConnected, 0, diagShowName | diagShowPeer, 0, 0} { // states, inode, show, cookie
		req = binary.NativeEndian.AppendUint32(req, word)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return nil, fmt.Errorf("ask the kernel for connected sockets: %w", err)
	}
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("ask the kernel for connected sockets: %w", err)
	}
	inodes, buf := map[string]bool{}, make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, fmt.Errorf("read the kernel's connected sockets: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, fmt.Errorf("read the kernel's connected sockets: %w", err)
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return inodes, nil
			case unix.NLMSG_ERROR:
				return nil, fmt.Errorf("the kernel does not list connected sockets (unix_diag): %x", m.Data)
			}
			if name, peer := diagOf(m.Data); peer != 0 && sameRun(name) == sameRun(socket) {
				inodes[strconv.FormatUint(uint64(peer), 10)] = true
			}
		}
	}
}

// diagOf returns a socket's path and the inode of its other end, from a unix_diag_msg and its attributes.
func diagOf(b []byte) (name string, peer uint32) {
	b = b[min(diagMessage, len(b)):]
	for len(b) >= unix.SizeofRtAttr {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < unix.SizeofRtAttr || size > len(b) {
			break
		}
		value := b[unix.SizeofRtAttr:size]
		switch {
		case kind == diagName:
			name = strings.TrimRight(string(value), "\x00")
		case kind == diagPeer && len(value) >= 4:
			peer = binary.NativeEndian.Uint32(value)
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return name, peer
}
