/* Bytecode modules: how a loader (mt_module.h) checks and runs one. */
#include "mt_bytecode.h"
#include "mt_module.h"
#include "mtool.h"

static int32_t check(const struct mt_module_view *view)
{
    struct mt_bytecode opened;
    const int32_t refused = mt_bytecode_open(&opened, view->image, view->image_bytes, mt_bytecode_library,
                                             mt_bytecode_library_count);
    if (refused)
        return refused == MT_BYTECODE_NO_KERNEL ? MT_MISSING_IMPORT : MT_BAD_MODULE;
    return opened.arena_bytes <= view->arena_bytes && mt_bytecode_operators(&opened) == view->operator_count
               ? MT_OK
               : MT_BAD_MODULE;
}

static int32_t call(const struct mt_module *module, uint32_t number)
{
    struct mt_bytecode opened;
    if (number == MT_MODULE_BEGIN) /* no state is kept */
        return MT_OK;
    mt_bytecode_reopen(&opened, module->view.image, mt_bytecode_library, mt_bytecode_library_count);
    if (number != MT_MODULE_RUN)
        return mt_bytecode_run_one(&opened, module->model.arena, number) ? MT_OK : MT_BAD_INDEX;
    mt_bytecode_run(&opened, module->model.arena);
    return MT_OK;
}

const struct mt_module_kind mt_module_bytecode = {MT_MODULE_BYTECODE, check, call};
