package statefile

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// ErrUntrusted is the error for a file or directory that another user could have written.
var ErrUntrusted = errors.New("the file or directory is not trusted")

// isLink reports whether opening a file failed because the file is a symbolic link.
func isLink(err error) bool { return errors.Is(err, syscall.ELOOP) }

// checkTrusted returns an error if a file is not trusted. A trusted file is a regular file, its owner is the agent's
// user or root, and its mode has none of the bits in forbidden.
func checkTrusted(info fs.FileInfo, forbidden fs.FileMode) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: it is not a regular file", ErrUntrusted)
	}
	if uid, _ := ownerOf(info); uid != os.Geteuid() && uid != 0 {
		return fmt.Errorf("%w: its owner is user %d, and must be root or the agent's user %d", ErrUntrusted, uid, os.Geteuid())
	}
	if have := info.Mode().Perm() & forbidden; have != 0 {
		return fmt.Errorf("%w: its mode %#o gives others access; the mode must not have the bits %#o", ErrUntrusted, info.Mode().Perm(), forbidden)
	}
	return nil
}

// checkTrustedDir returns an error if other users can create files in a directory. The agent's group and root's group
// may have the right to write, because a umask of 002 gives the group this right.
func checkTrustedDir(info fs.FileInfo) error {
	uid, gid := ownerOf(info)
	mode := info.Mode().Perm()
	switch {
	case !info.IsDir():
		return fmt.Errorf("%w: it is not a directory", ErrUntrusted)
	case uid != os.Geteuid() && uid != 0:
		return fmt.Errorf("%w: its owner is user %d, and must be root or the agent's user %d: change the owner, or configure another directory", ErrUntrusted, uid, os.Geteuid())
	case mode&0o002 != 0, mode&0o020 != 0 && gid != 0 && gid != os.Getegid():
		return fmt.Errorf("%w: its mode %#o lets other users write to it: run chmod go-w on the directory, or configure another directory", ErrUntrusted, mode)
	}
	return nil
}

// ownerOf returns the ids of the user and the group that own a file; -1 if they are not known.
func ownerOf(info fs.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return -1, -1
}

// isRemoved reports whether an open file was removed from its directory.
func isRemoved(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink == 0
}

// signatureStart precedes the signature in a file. The signature is the last member of the file's JSON object, and
// decoders ignore this member.
const signatureStart = `,"mac":"`

// Sign adds a signature to a JSON object that has members. The signature covers the text of the
// object and the parameter name, which is the name of the file for the object.
func Sign(key []byte, name string, object []byte) []byte {
	body := object[:len(object)-1]
	return append(append(slices.Clip(body), signatureStart+signatureOf(key, name, body)...), `"}`...)
}

// VerifySignature returns an error if the object does not have the signature that Sign makes with the same key and file
// name.
func VerifySignature(key []byte, name string, object []byte) error {
	at := bytes.LastIndex(object, []byte(signatureStart))
	if at < 0 {
		return fmt.Errorf("%w: it has no signature (mac)", ErrUntrusted)
	}
	if want := signatureStart + signatureOf(key, name, object[:at]) + `"}`; !hmac.Equal(object[at:], []byte(want)) {
		return fmt.Errorf("%w: its signature is wrong: the file was damaged, or signed with another key", ErrUntrusted)
	}
	return nil
}

// signatureOf returns the signature of a file in hexadecimal. The file has the given name, and the content body.
func signatureOf(key []byte, name string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("trimtab state 1\x00" + name + "\x00"))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}
