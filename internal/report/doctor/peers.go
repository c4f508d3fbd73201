package doctor

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Constants of sock_diag(7) and of Linux' include/uapi/linux/unix_diag.h.
const (
	diagByFamily  = 20     // SOCK_DIAG_BY_FAMILY
	diagShowName  = 1 << 0 // UDIAG_SHOW_NAME
	diagShowPeer  = 1 << 2 // UDIAG_SHOW_PEER
	diagName      = 0      // UNIX_DIAG_NAME
	diagPeer      = 2      // UNIX_DIAG_PEER
	diagMessage   = 16     // size of unix_diag_msg in bytes
	diagConnected = 1 << 1 // the bit of the state TCP_ESTABLISHED
)

// peersOf returns the processes that are connected to a listening socket of this node, as "name (PID)", sorted. It
// asks the kernel for the client ends of the socket's connections. It does not find sockets of other network
// namespaces, and needs the right to read /proc/PID/fd.
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
		if err != nil { // the process has ended
			continue
		}
		found[fmt.Sprintf("%s (%s)", strings.TrimSpace(string(name)), pid)] = true
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// peerInodes returns the inodes of the client sockets that are connected to a listening socket.
func peerInodes(socket string) (map[string]bool, error) {
	request := []byte{unix.AF_UNIX, 0, 0, 0}                                             // family, protocol, padding
	for _, word := range []uint32{diagConnected, 0, diagShowName | diagShowPeer, 0, 0} { // states, inode, show, cookie
		request = binary.NativeEndian.AppendUint32(request, word)
	}
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for connected sockets: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return nil, fmt.Errorf("ask the kernel for connected sockets: %w", err)
	}
	sockets, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: diagByFamily, Flags: netlink.Request | netlink.Dump}, Data: request})
	if err != nil {
		return nil, fmt.Errorf("read the kernel's connected sockets (unix_diag): %w", err)
	}
	inodes := map[string]bool{}
	for _, s := range sockets {
		name, peer, err := parseDiag(s.Data)
		if err != nil {
			return nil, fmt.Errorf("read the kernel's connected sockets: %w", err)
		}
		if peer != 0 && trimVar(name) == trimVar(socket) {
			inodes[strconv.FormatUint(uint64(peer), 10)] = true
		}
	}
	return inodes, nil
}

// parseDiag reads a unix_diag_msg with its attributes. It returns the path of the socket and the inode of its peer.
func parseDiag(b []byte) (name string, peer uint32, err error) {
	attributes, err := netlink.NewAttributeDecoder(b[min(diagMessage, len(b)):])
	if err != nil {
		return "", 0, err
	}
	for attributes.Next() {
		switch attributes.Type() {
		case diagName:
			name = attributes.String()
		case diagPeer:
			peer = attributes.Uint32()
		}
	}
	return name, peer, attributes.Err()
}
