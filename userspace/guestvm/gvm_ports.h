/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* The port numbers of gvm.h for the assembler; gvm.c checks they agree. */
#ifndef GVM_PORTS_H
#define GVM_PORTS_H

#define GVM_ASM_PORT_DONE	0x4b0
#define GVM_ASM_PORT_EXCEPTION	0x4b4

#endif
