/* Internal to mtool: applications include mtool.h. */
/* The firmware's link key. A build with --link-key has another file in place of this one, whose mt_link_key.h defines
 * MT_LINK_KEY as the initializer of 16 bytes: then RPC and the journal of module slots are authenticated. */
#ifndef MT_KEY_H
#define MT_KEY_H

#endif
