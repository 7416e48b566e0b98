package control

import "syscall"

// ownGroup puts a child into a process group of its own, so that a terminal's interrupt reaches the parent alone.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
